package files

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/tranship-io/tranship/engine/rowtext"
)

// jsonlRows writes one JSON object a line, with all columns in order.
type jsonlRows struct {
	cols  []column
	names [][]byte
	cells []rowtext.Cell
	arrs  []arrow.Array
}

func (j *jsonlRows) header(dst []byte) []byte { return dst }

func (j *jsonlRows) bind(rec arrow.RecordBatch) error {
	j.cells, j.arrs = j.cells[:0], j.arrs[:0]
	for i, c := range j.cols {
		if len(j.names) <= i {
			lead := byte(',')
			if i == 0 {
				lead = '{'
			}
			j.names = append(j.names, append(rowtext.AppendString([]byte{lead}, c.field.Name), ':'))
		}
		write, err := jsonlCell(c, rec.Column(i))
		if err != nil {
			return err
		}
		j.cells = append(j.cells, write)
		j.arrs = append(j.arrs, rec.Column(i))
	}
	return nil
}

// jsonlCell writes a column's values; a text column's are always strings.
func jsonlCell(c column, arr arrow.Array) (rowtext.Cell, error) {
	if !c.text {
		return rowtext.JSON(c.field.Type, arr)
	}
	write, err := rowtext.Text(c.field.Type, arr)
	if err != nil {
		return nil, err
	}
	var scratch []byte
	return func(dst []byte, i int) []byte {
		scratch = write(scratch[:0], i)
		return rowtext.AppendString(dst, string(scratch))
	}, nil
}

func (j *jsonlRows) row(dst []byte, i int) []byte {
	for k, write := range j.cells {
		dst = append(dst, j.names[k]...)
		if j.arrs[k].IsNull(i) {
			dst = append(dst, "null"...)
		} else {
			dst = write(dst, i)
		}
	}
	return append(dst, '}', '\n')
}
