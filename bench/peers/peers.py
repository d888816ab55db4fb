"""Peers of the Parquet benchmark, and the reader that compares their files."""

import glob
import hashlib
import importlib.util
import json
import os
import sys


def duckdb_connection():
    import duckdb

    return duckdb.connect()


def export_duckdb(url: str, table: str, out: str) -> None:
    con = duckdb_connection()
    spec = importlib.util.find_spec("duckdb_extension_postgres_scanner")
    root = list(spec.submodule_search_locations)[0]
    path = glob.glob(os.path.join(root, "extensions", "*", "postgres_scanner.duckdb_extension"))[0]
    con.execute(f"LOAD '{path}'")
    con.execute("SET threads = 2")
    con.execute(f"ATTACH '{url}' AS src (TYPE postgres, READ_ONLY)")
    con.execute(f"COPY (SELECT * FROM src.{table}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")


def export_connectorx(url: str, table: str, out: str) -> None:
    import connectorx
    import pyarrow.parquet

    data = connectorx.read_sql(url, f"SELECT * FROM {table}", return_type="arrow", partition_on="id", partition_num=2)
    pyarrow.parquet.write_table(data, out, compression="zstd")


COLUMNS = """id::BIGINT, vendor::INT, epoch_us(pickup), epoch_us(dropoff), passengers::INT, distance::DECIMAL(12,2), rate::INT,
  flag, pu::INT, dropped::INT, payment::INT, fare::DECIMAL(12,2), extra::DOUBLE, tip::DOUBLE, note, total::DECIMAL(12,2)"""


def content(path: str) -> str:
    con = duckdb_connection()
    con.execute("SET TimeZone = 'UTC'")
    files = [path]
    if os.path.isdir(path):
        with open(os.path.join(path, "manifest.json"), encoding="utf-8") as f:
            files = [os.path.join(path, x["name"]) for x in json.load(f)["files"]]
    con.execute(f"CREATE VIEW t AS SELECT {COLUMNS} FROM read_parquet({files!r})")
    digest = hashlib.sha256()
    cursor = con.execute("SELECT * FROM t ORDER BY 1")
    while rows := cursor.fetchmany(50_000):
        for row in rows:
            digest.update(repr(row).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    what, args = sys.argv[1], sys.argv[2:]
    if what == "content":
        print(content(*args))
    else:
        {"duckdb": export_duckdb, "connectorx": export_connectorx}[what](*args)
