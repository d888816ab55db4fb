package files

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/tranship-io/tranship/engine/rowtext"
	"github.com/tranship-io/tranship/engine/schema"
)

// asideValue appends a value of a row that is set aside as JSON, whatever it
// is: text that is no UTF-8 as {"base64":…}, JSON and numbers that are none as
// strings.
func asideValue(dst []byte, c column, arr arrow.Array, row int) ([]byte, error) {
	if s, ok := arr.(*array.String); ok {
		v := s.Value(row)
		switch {
		case !utf8.ValidString(v):
			dst = append(dst, `{"base64":"`...)
			dst = base64.StdEncoding.AppendEncode(dst, []byte(v))
			return append(dst, '"', '}'), nil
		case c.field.Type.Kind == schema.Decimal && rowtext.IsNumber(v):
			return append(dst, v...), nil
		case (c.field.Type.Kind == schema.JSON || c.field.Type.Kind == schema.JSONB) && json.Valid([]byte(v)):
			return rowtext.AppendOneLine(dst, v), nil
		}
		return rowtext.AppendString(dst, v), nil
	}
	write, err := rowtext.JSON(c.field.Type, arr)
	if err != nil {
		return nil, err
	}
	return write(dst, row), nil
}
