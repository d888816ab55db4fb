// Package integrity proves that what arrived is what was read: checksums over
// batches in flight, and content digests of rows that depend neither on their
// order nor on the system that holds them. The encoding that rows are hashed in
// is specified in docs/integrity.md.
package integrity

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"strings"

	"github.com/zeebo/xxh3"
)

// Seed is the key of the row hash; it is part of the digest's definition.
const Seed uint64 = 0x7472616e73686970

const digestPrefix = "xxh3-128-sum:"

// Digest is the sum, modulo 2^128, of the keyed 128-bit hashes of rows in
// canonical encoding. Sums commute, so order and parallelism don't matter, and
// unlike XOR equal rows don't cancel. The zero value is the digest of no rows.
type Digest struct {
	Hi, Lo uint64
}

// AddRow adds one row, given in canonical encoding.
func (d *Digest) AddRow(canonical []byte) {
	h := xxh3.Hash128Seed(canonical, Seed)
	var carry uint64
	d.Lo, carry = bits.Add64(d.Lo, h.Lo, 0)
	d.Hi, _ = bits.Add64(d.Hi, h.Hi, carry)
}

// Add adds the digest of other rows.
func (d *Digest) Add(o Digest) {
	var carry uint64
	d.Lo, carry = bits.Add64(d.Lo, o.Lo, 0)
	d.Hi, _ = bits.Add64(d.Hi, o.Hi, carry)
}

// Sub takes rows away that were added before.
func (d *Digest) Sub(o Digest) {
	var borrow uint64
	d.Lo, borrow = bits.Sub64(d.Lo, o.Lo, 0)
	d.Hi, _ = bits.Sub64(d.Hi, o.Hi, borrow)
}

// String writes the digest as receipts do.
func (d Digest) String() string {
	return fmt.Sprintf("%s%016x%016x", digestPrefix, d.Hi, d.Lo)
}

// MarshalJSON implements json.Marshaler.
func (d Digest) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Digest) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("read digest: %w", err)
	}
	v, err := ParseDigest(s)
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// ParseDigest reads what String writes.
func ParseDigest(s string) (Digest, error) {
	hexed, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || len(hexed) != 32 {
		return Digest{}, fmt.Errorf("read digest %q: want %q and 32 hex digits", s, digestPrefix)
	}
	var b [16]byte
	if _, err := hex.Decode(b[:], []byte(hexed)); err != nil {
		return Digest{}, errors.Join(fmt.Errorf("read digest %q", s), err)
	}
	var d Digest
	for i := range 8 {
		d.Hi = d.Hi<<8 | uint64(b[i])
		d.Lo = d.Lo<<8 | uint64(b[8+i])
	}
	return d, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC continues a CRC32C over further bytes; start with 0.
func CRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }
