package schema

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
)

// Special values in flight. Some systems have values that Arrow has no place
// for: infinite dates and timestamps, decimals that are not numbers. They
// travel as values that no real one can take, so that nothing is changed
// silently; a sink that cannot hold them applies the value policy.
const (
	DatePosInf      int32 = math.MaxInt32
	DateNegInf      int32 = math.MinInt32
	TimestampPosInf int64 = math.MaxInt64
	TimestampNegInf int64 = math.MinInt64
)

// Decimal128 sentinels: all lie beyond 38 digits.
var (
	DecimalNaN    = decimal128.New(math.MaxInt64, math.MaxUint64-1)
	DecimalPosInf = decimal128.New(math.MaxInt64, math.MaxUint64)
	DecimalNegInf = decimal128.New(math.MinInt64, 0)
)

// Decimal256 sentinels: all lie beyond 76 digits.
var (
	Decimal256NaN    = decimal256.New(math.MaxInt64, math.MaxUint64, math.MaxUint64, math.MaxUint64-1)
	Decimal256PosInf = decimal256.New(math.MaxInt64, math.MaxUint64, math.MaxUint64, math.MaxUint64)
	Decimal256NegInf = decimal256.New(1<<63, 0, 0, 0)
)
