package nycflights

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/zstd"
)

//go:embed data/*.csv.zst
var data embed.FS

//go:embed schema.sql
var schema string

//go:embed constraints.sql
var constraints string

// Table is one table of the data set.
type Table struct {
	Name string
	Rows int64
	// columns are the CSV's, in its order; the tables may have more.
	columns string
}

// Tables lists the tables in an order that foreign keys allow.
func Tables() []Table {
	return []Table{
		{"airlines", 16, "carrier, name"},
		{"airports", 1_458, "faa, name, lat, lon, alt, tz, dst, tzone"},
		{"planes", 3_322, "tailnum, year, type, manufacturer, model, engines, seats, speed, engine"},
		{"weather", 26_115, "origin, year, month, day, hour, temp, dewp, humid, wind_dir, wind_speed, wind_gust, precip, pressure, visib, time_hour"},
		{"flights", 336_776, "year, month, day, dep_time, sched_dep_time, dep_delay, arr_time, sched_arr_time, arr_delay, carrier, flight, tailnum, origin, dest, air_time, distance, hour, minute, time_hour"},
	}
}

// Open returns a table's original CSV, with a header line and NA for NULL.
func Open(table string) (io.ReadCloser, error) {
	f, err := data.Open("data/" + table + ".csv.zst")
	if err != nil {
		return nil, fmt.Errorf("open table %q: %w", table, err)
	}
	d, err := zstd.NewReader(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d.IOReadCloser(), nil
}

// Load creates the five tables in the schema public of the database that url
// names and fills them, in one transaction. It fails if one of them exists.
// Flights are numbered in the order of the file, so every load gives the same
// ids; updated_at starts as the flight's scheduled hour, and a trigger sets it to
// the current time whenever a row changes.
func Load(ctx context.Context, url string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, schema); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
		for _, t := range Tables() {
			if err := load(ctx, tx, t); err != nil {
				return fmt.Errorf("load table %q: %w", t.Name, err)
			}
		}
		// Keys and indexes are cheaper to build over rows that are there.
		if _, err := tx.Exec(ctx, constraints); err != nil {
			return fmt.Errorf("add constraints: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	names := make([]string, 0, len(Tables()))
	for _, t := range Tables() {
		names = append(names, "public."+t.Name)
	}
	_, err = conn.Exec(ctx, "ANALYZE "+strings.Join(names, ", "))
	return err
}

func load(ctx context.Context, tx pgx.Tx, t Table) (err error) {
	csv, err := Open(t.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, csv.Close()) }()
	tag, err := tx.Conn().PgConn().CopyFrom(ctx, csv, fmt.Sprintf(
		"COPY public.%s (%s) FROM STDIN WITH (FORMAT csv, HEADER, NULL 'NA')", t.Name, t.columns))
	if err != nil {
		return err
	}
	if tag.RowsAffected() != t.Rows {
		return fmt.Errorf("copied %d rows, want %d", tag.RowsAffected(), t.Rows)
	}
	return nil
}
