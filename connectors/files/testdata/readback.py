"""Reads what the files sink published with programs of another make.

readback.py show FOLDER        prints a line a column: reader, name, type, values
readback.py same FOLDER OTHER  compares a Parquet table with the same rows as CSV,
                               cast to its types, and prints how many rows differ
"""

import json
import os
import sys

import duckdb
import pyarrow.parquet as pq


def published(folder: str):
    with open(os.path.join(folder, "manifest.json")) as f:
        manifest = json.load(f)
    return manifest["format"], [os.path.join(folder, f["name"]) for f in manifest["files"]]


def source(fmt: str, paths) -> str:
    files = "[" + ", ".join("'" + p.replace("'", "''") + "'" for p in paths) + "]"
    if fmt == "parquet":
        return f"read_parquet({files})"
    return (
        f"read_csv({files}, all_varchar=true, header=true, delim=',', quote='\"', escape='\"', "
        "allow_quoted_nulls=false, max_line_size=200000000)"
    )


def text(scalar) -> str:
    """Python's own dates end at year 9999 and have no year 0, its timestamps no
    nanoseconds: the number in the file says what they can't."""
    try:
        return str(scalar)
    except (OverflowError, ValueError):
        return str(scalar.value)


def line(*parts) -> None:
    print(json.dumps([p if p is not None else None for p in parts], ensure_ascii=True))


def connect():
    con = duckdb.connect()
    con.execute("SET TimeZone='UTC'")
    return con


def refuse(word: str):
    raise ValueError(f"{word} is no JSON")


def show(folder: str) -> None:
    fmt, paths = published(folder)
    if fmt == "jsonl":
        rows = []
        for p in paths:
            with open(p, "rb") as f:
                # Numbers stay the text that they are in the file.
                rows += [json.loads(l, parse_float=str, parse_int=str, parse_constant=refuse) for l in f]
        for name in rows[0]:
            line("json", name, *[r[name] for r in rows])
        return
    con = connect()
    rel = con.execute(f"SELECT * FROM {source(fmt, paths)}")
    types = [(d[0], str(d[1])) for d in rel.description]
    columns = ", ".join(f'"{n}"::VARCHAR' for n, _ in types)
    rows = con.execute(f"SELECT {columns} FROM {source(fmt, paths)} ORDER BY id::BIGINT").fetchall()
    for i, (name, kind) in enumerate(types):
        line("duckdb", name, kind, *[r[i] for r in rows])
    if fmt == "parquet":
        table = pq.read_table(paths[0])
        for f in table.schema:
            line("pyarrow", f.name, str(f.type), *[text(v) for v in table.column(f.name)])


def same(folder: str, other: str) -> None:
    con = connect()
    con.execute(f"CREATE VIEW a AS SELECT * FROM {source(*published(folder))}")
    fields = con.execute("DESCRIBE a").fetchall()
    casts = ", ".join(f'CAST("{f[0]}" AS {f[1]}) AS "{f[0]}"' for f in fields)
    con.execute(f"CREATE VIEW b AS SELECT {casts} FROM {source(*published(other))}")
    counts = [con.execute(q).fetchone()[0] for q in (
        "SELECT count(*) FROM a",
        "SELECT count(*) FROM b",
        "SELECT count(*) FROM (SELECT * FROM a EXCEPT ALL SELECT * FROM b)",
        "SELECT count(*) FROM (SELECT * FROM b EXCEPT ALL SELECT * FROM a)",
    )]
    line(*counts)


{"show": show, "same": same}[sys.argv[1]](*sys.argv[2:])
