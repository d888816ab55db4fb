package casetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"
)

// row is one row of a file by column name: null, else the text of the cell
// (CSV), its JSON (JSONL), or what Arrow prints (Parquet).
type row map[string]string

// null stands for NULL, which is told apart from every text of the tests.
const null = "<NULL>"

// rows reads a table's files as its manifest lists them, ordered by the column id.
func (p *place) rows(format, table string) []row {
	p.t.Helper()
	folder := filepath.Join(p.folder(format), table)
	body, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	require.NoError(p.t, err)
	var m struct {
		Files []struct {
			Name string `json:"name"`
		} `json:"files"`
		Rows int `json:"rows"`
	}
	require.NoError(p.t, json.Unmarshal(body, &m))
	var out []row
	for _, f := range m.Files {
		body, err := os.ReadFile(filepath.Join(folder, f.Name))
		require.NoError(p.t, err)
		switch format {
		case "parquet":
			out = append(out, p.parquet(body)...)
		case "jsonl":
			out = append(out, p.jsonl(body)...)
		default:
			out = append(out, p.csv(string(body))...)
		}
	}
	require.Len(p.t, out, m.Rows, "the manifest counts right")
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i]["id"], out[j]["id"]
		return len(a) < len(b) || len(a) == len(b) && a < b
	})
	return out
}

// ids are the values of the column id.
func ids(rows []row) []string {
	out := []string{}
	for _, r := range rows {
		out = append(out, r["id"])
	}
	return out
}

func (p *place) parquet(body []byte) []row {
	p.t.Helper()
	f, err := file.NewParquetReader(bytes.NewReader(body))
	require.NoError(p.t, err)
	rd, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	require.NoError(p.t, err)
	tb, err := rd.ReadTable(context.Background())
	require.NoError(p.t, err)
	defer tb.Release()
	out := make([]row, tb.NumRows())
	for i := range out {
		out[i] = row{}
	}
	for i := range int(tb.NumCols()) {
		n := 0
		for _, a := range tb.Column(i).Data().Chunks() {
			for j := range a.Len() {
				out[n][tb.Schema().Field(i).Name] = cell(a, j)
				n++
			}
		}
	}
	return out
}

func cell(a arrow.Array, i int) string {
	if a.IsNull(i) {
		return null
	}
	return a.ValueStr(i)
}

func (p *place) jsonl(body []byte) []row {
	p.t.Helper()
	var out []row
	sc := bufio.NewScanner(bytes.NewReader(body))
	sc.Buffer(nil, 1<<26)
	for sc.Scan() {
		var m map[string]json.RawMessage
		require.True(p.t, json.Valid(sc.Bytes()), "strict JSON: %s", sc.Text())
		require.NoError(p.t, json.Unmarshal(sc.Bytes(), &m))
		r := row{}
		for k, v := range m {
			if r[k] = string(v); r[k] == "null" {
				r[k] = null
			}
		}
		out = append(out, r)
	}
	require.NoError(p.t, sc.Err())
	return out
}

// csv reads RFC 4180 and tells an empty field without quotes from "".
func (p *place) csv(body string) []row {
	p.t.Helper()
	var out []row
	var head []string
	var line []string
	for body != "" {
		field := null
		if strings.HasPrefix(body, `"`) {
			var b strings.Builder
			rest := body[1:]
			for {
				i := strings.IndexByte(rest, '"')
				require.GreaterOrEqual(p.t, i, 0, "a quote is closed")
				b.WriteString(rest[:i])
				rest = rest[i+1:]
				if !strings.HasPrefix(rest, `"`) {
					break
				}
				b.WriteByte('"')
				rest = rest[1:]
			}
			field, body = b.String(), rest
		} else {
			i := strings.IndexAny(body, ",\r\n")
			require.GreaterOrEqual(p.t, i, 0, "a line is ended")
			if i > 0 {
				field = body[:i]
			}
			body = body[i:]
		}
		line = append(line, field)
		if strings.HasPrefix(body, ",") {
			body = body[1:]
			continue
		}
		trimmed := strings.TrimPrefix(strings.TrimPrefix(body, "\r"), "\n")
		require.NotEqual(p.t, body, trimmed, "a field ends in a comma or a line end")
		body = trimmed
		if head == nil {
			head = line
		} else {
			require.Len(p.t, line, len(head))
			r := row{}
			for i, v := range line {
				r[head[i]] = v
			}
			out = append(out, r)
		}
		line = nil
	}
	return out
}

// onlyListed requires that no data file lies below a table's folder but those of
// its manifest.
func (p *place) onlyListed(format, table string) {
	p.t.Helper()
	folder := filepath.Join(p.folder(format), table)
	body, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	require.NoError(p.t, err)
	require.NoError(p.t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, "."+format) {
			require.Contains(p.t, string(body), filepath.Base(path))
		}
		return err
	}))
}
