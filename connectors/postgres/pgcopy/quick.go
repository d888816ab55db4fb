package pgcopy

import "encoding/binary"

// margin is the memory that quick wants to have from each field on, where it
// reads and writes whole words: more than a head and any fixed width.
const margin = 32

// quick does what canonical does, for a tuple of usual fields with some memory
// behind it: it may look at bytes past the end of buf, and takes nothing from
// them. For any other tuple it returns 0. It is a function of its own because it
// is short enough for the compiler to keep it in registers.
func (d *Digester) quick(buf []byte) (int, []byte) {
	in, out := buf[:cap(buf)], d.buf[:cap(d.buf)]
	pos, run, w := 2, 2, 0
	for _, o := range d.ops {
		if len(in)-pos < margin {
			return 0, nil
		}
		head := in[pos : pos+margin]
		n := int(int32(binary.BigEndian.Uint32(head)))
		switch o {
		case opVerbatim:
			// A fixed advance lets the processor go on before n is known.
			switch {
			case n == 8:
				pos += 12
			case n >= 0:
				pos += 4 + n
			case n == -1:
				pos += 4
			default:
				return 0, nil
			}
			continue
		case opFloat8:
			if n == 8 && !isNaN64(binary.BigEndian.Uint64(head[4:])) {
				pos += 12
				continue
			}
		}
		if n == -1 {
			pos += 4
			continue
		}
		k := pos - run
		if len(out)-w < k+margin {
			return 0, nil
		}
		if k <= 16 {
			// in has margin bytes from pos on, so from run on, too.
			from, to := in[run:run+16], out[w:w+16]
			a, b := binary.LittleEndian.Uint64(from), binary.LittleEndian.Uint64(from[8:])
			binary.LittleEndian.PutUint64(to, a)
			binary.LittleEndian.PutUint64(to[8:], b)
		} else {
			copy(out[w:], in[run:pos])
		}
		to := out[w+k : w+k+16]
		switch {
		case o == opInt4 && n == 4:
			v := int64(int32(binary.BigEndian.Uint32(head[4:])))
			binary.BigEndian.PutUint32(to, 8)
			binary.BigEndian.PutUint64(to[4:], uint64(v))
			w += k + 12
			pos += 8
			run = pos
		case o == opInt2 && n == 2:
			v := int64(int16(binary.BigEndian.Uint16(head[4:])))
			binary.BigEndian.PutUint32(to, 8)
			binary.BigEndian.PutUint64(to[4:], uint64(v))
			w += k + 12
			pos += 6
			run = pos
		case o == opNumeric && n >= 8 && n <= margin-4 && plainNumeric(head[4:4+n]):
			v := binary.BigEndian.Uint64(head[4:])
			binary.BigEndian.PutUint64(to, uint64(n-3)<<32|v>>30&1<<24|v>>32&0xffff<<8|v>>56)
			to[8] = byte(v >> 48)
			w += k + 9
			run = pos + 12
			pos += 4 + n
		default:
			return 0, nil
		}
	}
	k := pos - run
	if pos > len(buf) || len(out)-w < k {
		return 0, nil
	}
	if run == 2 {
		return pos, buf[2:pos]
	}
	w += copy(out[w:], buf[run:pos])
	return pos, out[:w]
}
