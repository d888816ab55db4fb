package files

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine/rowtext"
)

// readJSONL reads lines with a strict JSON parser.
func readJSONL(r io.Reader, cols []column, mem memory.Allocator, take func(arrow.RecordBatch) error) error {
	rows := newRowBuilder(cols, mem, take)
	defer rows.release()
	in := bufio.NewReaderSize(r, lineFlush)
	var line []byte
	for n := 1; ; n++ {
		part, err := in.ReadSlice('\n')
		line = append(line[:0], part...)
		for errors.Is(err, bufio.ErrBufferFull) {
			part, err = in.ReadSlice('\n')
			line = append(line, part...)
		}
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				return fmt.Errorf("line %d is cut off", n)
			}
			return rows.flush()
		}
		if err != nil {
			return err
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(line, &object); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if len(object) != len(cols) {
			return fmt.Errorf("line %d has %d members, not %d", n, len(object), len(cols))
		}
		for i, c := range cols {
			raw, ok := object[c.field.Name]
			if !ok {
				return fmt.Errorf("line %d lacks %q", n, c.field.Name)
			}
			if c.source == "" {
				continue
			}
			if err := readMember(rows, i, c, raw); err != nil {
				return fmt.Errorf("line %d, %q: %w", n, c.field.Name, err)
			}
		}
		if err := rows.end(len(line)); err != nil {
			return err
		}
	}
}

func readMember(rows *rowBuilder, i int, c column, raw json.RawMessage) error {
	b := rows.b.Field(i)
	if string(raw) == "null" {
		b.AppendNull()
		return nil
	}
	if !c.text {
		return rowtext.ParseJSON(b, c.field.Type, raw)
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	return rowtext.ParseText(b, c.field.Type, text)
}

// readCSV reads RFC 4180 with the difference between an empty field and an
// empty string that the usual parsers lose.
func readCSV(r io.Reader, cols []column, mem memory.Allocator, take func(arrow.RecordBatch) error) error {
	rows := newRowBuilder(cols, mem, take)
	defer rows.release()
	in := &csvReader{r: bufio.NewReaderSize(r, lineFlush)}
	for n := 0; ; n++ {
		fields, err := in.record()
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return errors.New("there is no header")
			}
			return rows.flush()
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		if len(fields) != len(cols) {
			return fmt.Errorf("record %d has %d fields, not %d", n, len(fields), len(cols))
		}
		size := 0
		for i, c := range cols {
			f := fields[i]
			size += len(f.text)
			switch {
			case n == 0:
				if f.text != c.field.Name {
					return fmt.Errorf("header names %q, not %q", f.text, c.field.Name)
				}
			case c.source == "":
			case f.null:
				rows.b.Field(i).AppendNull()
			default:
				if err := rowtext.ParseText(rows.b.Field(i), c.field.Type, f.text); err != nil {
					return fmt.Errorf("record %d, %q: %w", n, c.field.Name, err)
				}
			}
		}
		if n > 0 {
			if err := rows.end(size); err != nil {
				return err
			}
		}
	}
}

// csvField is a field; null if it was empty without quotes.
type csvField struct {
	text string
	null bool
}

type csvReader struct {
	r   *bufio.Reader
	buf bytes.Buffer
}

// record reads fields up to the end of a line. io.EOF: there is none.
func (c *csvReader) record() ([]csvField, error) {
	if _, err := c.r.Peek(1); err != nil {
		return nil, err
	}
	var fields []csvField
	for {
		f, last, err := c.field()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the last line is cut off")
			}
			return nil, err
		}
		fields = append(fields, f)
		if last {
			return fields, nil
		}
	}
}

// field reads one field and what ends it: a comma, or CR LF (last true).
func (c *csvReader) field() (f csvField, last bool, err error) {
	c.buf.Reset()
	b, err := c.r.ReadByte()
	if err != nil {
		return f, false, err
	}
	quoted := b == '"'
	if quoted {
		for {
			part, err := c.r.ReadSlice('"')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return f, false, err
			}
			c.buf.Write(part)
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if b, err = c.r.ReadByte(); err != nil {
				return f, false, err
			}
			if b != '"' {
				c.buf.Truncate(c.buf.Len() - 1)
				break
			}
		}
	} else {
		for b != ',' && b != '\r' {
			if b == '"' || b == '\n' {
				return f, false, fmt.Errorf("character %q stands without quotes", b)
			}
			c.buf.WriteByte(b)
			if b, err = c.r.ReadByte(); err != nil {
				return f, false, err
			}
		}
	}
	f = csvField{text: c.buf.String(), null: !quoted && c.buf.Len() == 0}
	switch b {
	case ',':
		return f, false, nil
	case '\r':
		if b, err = c.r.ReadByte(); err != nil {
			return f, false, err
		}
		if b == '\n' {
			return f, true, nil
		}
	}
	return f, false, fmt.Errorf("character %q follows a field", b)
}
