package pgcopy

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine/schema"
)

// Decoder turns tuples into Arrow records in the schema's in-flight types.
type Decoder struct{}

// NewDecoder makes a decoder of tuples whose fields are in the binary form of
// their native types; fields of kind Unknown must have been selected as text.
func NewDecoder(mem memory.Allocator, fields []schema.Field) (*Decoder, error) { return &Decoder{}, nil }

// Append decodes one complete tuple. A value that no in-flight type can hold
// gives a *RowError; after any error the decoder only takes Release.
func (d *Decoder) Append(tuple []byte) error { return nil }

// Rows is the number of tuples since the last Take, Bytes about their size in memory.
func (d *Decoder) Rows() int    { return 0 }
func (d *Decoder) Bytes() int64 { return 0 }

// Take returns the rows appended since the last Take as a record, which the
// caller releases, and starts anew.
func (d *Decoder) Take() arrow.RecordBatch { return nil }

// Release gives the decoder's memory back.
func (d *Decoder) Release() {}
