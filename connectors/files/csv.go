package files

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/tranship-io/tranship/engine/rowtext"
)

// csvRows writes RFC 4180: a header, fields in quotes where they hold a comma,
// a quote or a line break, lines that end in CR LF. NULL is an empty field
// without quotes, the empty string "". A row of a single NULL column is an
// empty line.
type csvRows struct {
	cols  []column
	cells []rowtext.Cell
	arrs  []arrow.Array
}

func (c *csvRows) header(dst []byte) []byte {
	for i, col := range c.cols {
		if i > 0 {
			dst = append(dst, ',')
		}
		from := len(dst)
		dst = quoteField(append(dst, col.field.Name...), from)
	}
	return append(dst, '\r', '\n')
}

func (c *csvRows) bind(rec arrow.RecordBatch) error {
	c.cells, c.arrs = c.cells[:0], c.arrs[:0]
	for i, col := range c.cols {
		write, err := rowtext.Text(col.field.Type, rec.Column(i))
		if err != nil {
			return err
		}
		c.cells = append(c.cells, write)
		c.arrs = append(c.arrs, rec.Column(i))
	}
	return nil
}

func (c *csvRows) row(dst []byte, i int) []byte {
	for k, write := range c.cells {
		if k > 0 {
			dst = append(dst, ',')
		}
		if c.arrs[k].IsValid(i) {
			from := len(dst)
			dst = quoteField(write(dst, i), from)
		}
	}
	return append(dst, '\r', '\n')
}

// quoteField puts what stands behind from into quotes if it needs them.
func quoteField(dst []byte, from int) []byte {
	field := dst[from:]
	if len(field) == 0 {
		return append(dst, '"', '"')
	}
	quotes := 0
	plain := field[0] != ' ' && field[len(field)-1] != ' '
	for _, b := range field {
		switch b {
		case '"':
			quotes++
			plain = false
		case ',', '\n', '\r', '\t':
			plain = false
		}
	}
	if plain {
		return dst
	}
	if quotes == 0 {
		dst = append(dst, 0)
		copy(dst[from+1:], dst[from:])
		dst[from] = '"'
		return append(dst, '"')
	}
	inner := bytes.ReplaceAll(field, []byte{'"'}, []byte{'"', '"'})
	dst = append(dst[:from], '"')
	return append(append(dst, inner...), '"')
}
