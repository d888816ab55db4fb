package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tranship-io/tranship/engine"
)

// writeJSON writes a value as indented JSON.
func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// table collects rows and writes them aligned.
type table struct {
	text strings.Builder
	tw   *tabwriter.Writer
}

func newTable(head ...string) *table {
	t := &table{}
	t.tw = tabwriter.NewWriter(&t.text, 0, 4, 2, ' ', 0)
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

func (t *table) row(cells ...string) {
	_, _ = fmt.Fprintln(t.tw, strings.Join(cells, "\t"))
}

func (t *table) print(w io.Writer, indent string) error {
	_ = t.tw.Flush()
	for _, line := range strings.Split(strings.TrimSuffix(t.text.String(), "\n"), "\n") {
		if _, err := fmt.Fprintln(w, strings.TrimRight(indent+line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// count writes a number with thousands apart; below 0 it is not known.
func count(n int64) string {
	if n < 0 {
		return "?"
	}
	s := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, r := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// size writes a number of bytes for people; below 0 it is not known.
func size(n int64) string {
	if n < 0 {
		return "?"
	}
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	x, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		x /= 1024
		if x < 1024 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", x, unit)
}

// span writes a duration for people.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// plural writes a count with its noun.
func plural[T int | int64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(int64(n)) + " " + noun + "s"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// withoutHint is an error's text without its hint, which is shown apart.
func withoutHint(err error) string {
	text, hint := err.Error(), engine.HintOf(err)
	if hint == "" {
		return text
	}
	return strings.ReplaceAll(text, " ("+hint+")", "")
}
