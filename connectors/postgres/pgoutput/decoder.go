package pgoutput

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/tranship-io/tranship/engine"
)

// LSN is a position in a server's write-ahead log, in bytes.
type LSN uint64

// Kind is a message's type, the first byte of its encoding.
type Kind byte

// The messages.
const (
	Begin    Kind = 'B'
	Commit   Kind = 'C'
	Origin   Kind = 'O'
	Relation Kind = 'R'
	Type     Kind = 'Y'
	Insert   Kind = 'I'
	Update   Kind = 'U'
	Delete   Kind = 'D'
	Truncate Kind = 'T'
	Logical  Kind = 'M'
)

// FieldKind says what a tuple has of a column.
type FieldKind byte

// The kinds of fields.
const (
	Null FieldKind = 'n'
	// Unsent is an unchanged TOASTed value.
	Unsent FieldKind = 'u'
	Text   FieldKind = 't'
	Binary FieldKind = 'b'
)

// Field is a column's value in a tuple.
type Field struct {
	Kind FieldKind
	Data []byte
}

// The replica identities of a table.
const (
	IdentityDefault byte = 'd'
	IdentityNothing byte = 'n'
	IdentityFull    byte = 'f'
	IdentityIndex   byte = 'i'
)

// Table is what the server says of a table before its first change, and again
// whenever that has changed.
type Table struct {
	OID          uint32
	Schema, Name string
	Identity     byte
	Columns      []Column
}

// Column is a column of a [Table].
type Column struct {
	// Key is true for a column of the replica identity.
	Key    bool
	Name   string
	Type   uint32
	Typmod int32
}

// Message is a decoded message. Only the fields of its Kind mean something.
type Message struct {
	Kind Kind
	// LSN is where a transaction commits (Begin, Commit), or a logical message stands.
	LSN LSN
	// End is the end of a commit: what a stream that has it goes on from.
	End LSN
	// At is when a transaction committed (Begin, Commit).
	At  time.Time
	XID uint32
	// Table is a new description (Relation).
	Table *Table
	// OID is the table of a row.
	OID uint32
	// Old is a row before its change: its whole replica identity, Full tells whether
	// that is the whole row; nil if the server did not send it. New is the row after.
	Old, New []Field
	Full     bool
	// OIDs are the tables of a Truncate.
	OIDs []uint32
	// Prefix and Content are a logical message's.
	Prefix, Content []byte
}

// epoch is where the server's clock begins.
const epoch = 946684800

// Decoder decodes messages; the zero value is ready.
type Decoder struct {
	m        Message
	old, new []Field
	in       []byte
	bad      bool
}

// Decode reads one message. An error is permanent: the server speaks another
// protocol, or bytes were lost.
func (d *Decoder) Decode(data []byte) (*Message, error) {
	d.in, d.bad = data, false
	d.m = Message{Kind: Kind(d.byte()), OIDs: d.m.OIDs[:0]}
	m := &d.m
	switch m.Kind {
	case Begin:
		m.LSN, m.At, m.XID = LSN(d.uint64()), d.time(), d.uint32()
	case Commit:
		d.byte()
		m.LSN, m.End, m.At = LSN(d.uint64()), LSN(d.uint64()), d.time()
	case Origin:
		d.uint64()
		d.text()
	case Relation:
		m.Table = d.table()
	case Type:
		d.uint32()
		d.text()
		d.text()
	case Insert:
		m.OID = d.uint32()
		d.want('N')
		m.New = d.tuple(&d.new)
	case Update:
		m.OID = d.uint32()
		mark := d.byte()
		if mark == 'K' || mark == 'O' {
			m.Full = mark == 'O'
			m.Old = d.tuple(&d.old)
			mark = d.byte()
		}
		d.bad = d.bad || mark != 'N'
		m.New = d.tuple(&d.new)
	case Delete:
		m.OID = d.uint32()
		mark := d.byte()
		d.bad = d.bad || mark != 'K' && mark != 'O'
		m.Full = mark == 'O'
		m.Old = d.tuple(&d.old)
	case Truncate:
		n := d.uint32()
		d.byte()
		for i := uint32(0); i < n && !d.bad; i++ {
			m.OIDs = append(m.OIDs, d.uint32())
		}
	case Logical:
		d.byte()
		m.LSN = LSN(d.uint64())
		m.Prefix = d.text()
		m.Content = d.bytes(int(d.uint32()))
	default:
		return nil, engine.Bugf("the server sent a message of type %q, which protocol version 1 does not have", string(rune(m.Kind)))
	}
	if d.bad || len(d.in) > 0 {
		return nil, engine.Bugf("a message of type %q (%d bytes) does not have the form of the protocol", string(rune(m.Kind)), len(data))
	}
	return m, nil
}

func (d *Decoder) table() *Table {
	t := &Table{OID: d.uint32(), Schema: string(d.text()), Name: string(d.text()), Identity: d.byte()}
	if t.Schema == "" {
		t.Schema = "pg_catalog" // the protocol leaves it out
	}
	n := int(d.uint16())
	for i := 0; i < n && !d.bad; i++ {
		t.Columns = append(t.Columns, Column{Key: d.byte()&1 != 0, Name: string(d.text()), Type: d.uint32(), Typmod: int32(d.uint32())})
	}
	return t
}

// tuple reads a row into fields that are used again.
func (d *Decoder) tuple(fields *[]Field) []Field {
	n := int(d.uint16())
	out := (*fields)[:0]
	for i := 0; i < n && !d.bad; i++ {
		f := Field{Kind: FieldKind(d.byte())}
		switch f.Kind {
		case Null, Unsent:
		case Text, Binary:
			f.Data = d.bytes(int(d.uint32()))
		default:
			d.bad = true
		}
		out = append(out, f)
	}
	*fields = out
	return out
}

// The parts of messages. Once one is missing all that follow are zero.

func (d *Decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.in) {
		d.bad, d.in = true, nil
		return nil
	}
	b := d.in[:n:n]
	d.in = d.in[n:]
	return b
}

func (d *Decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *Decoder) uint16() uint16 {
	if b := d.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (d *Decoder) uint32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *Decoder) uint64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// time reads microseconds since the year 2000.
func (d *Decoder) time() time.Time {
	us := int64(d.uint64())
	return time.Unix(epoch+us/1e6, us%1e6*1000).UTC()
}

// text reads up to a zero byte.
func (d *Decoder) text() []byte {
	i := bytes.IndexByte(d.in, 0)
	if i < 0 {
		d.bad, d.in = true, nil
		return nil
	}
	b := d.in[:i:i]
	d.in = d.in[i+1:]
	return b
}

func (d *Decoder) want(mark byte) { d.bad = d.byte() != mark || d.bad }
