package files

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/tranship-io/tranship/engine"
)

// Name is the connector's name in pipeline files.
const Name = "files"

// The formats.
const (
	FormatParquet = "parquet"
	FormatJSONL   = "jsonl"
	FormatCSV     = "csv"
)

// The compressions. Parquet takes zstd, snappy and none; JSONL and CSV take
// zstd, gzip and none.
const (
	CompressionNone   = "none"
	CompressionZstd   = "zstd"
	CompressionGzip   = "gzip"
	CompressionSnappy = "snappy"
)

// Defaults, with the arithmetic of memory. One slot that writes Parquet holds a
// row group's encoded pages (at most rowGroupDefault when nothing compresses),
// the pages being filled (at most pageBudget over all columns, values and their
// compressed copy) and the batch in hand (batchBytes): 32 + 2 × 8 + 4 = 52 MiB,
// doubled by garbage collection at its worst to about 104 MiB. Two slots stay
// below 256 MiB with the source's batches in flight.
const (
	rowGroupDefault = 32 << 20
	pageBudget      = 4 << 20
	batchBytes      = 4 << 20
	// rollDefault is the encoded size at which a file ends; epochDefault the size
	// in memory of an epoch, which compresses to about one such file.
	rollDefault  = 128 << 20
	epochDefault = 256 << 20
)

// Config is the connector's configuration.
type Config struct {
	// Path is a local folder ("./out") or "s3://bucket/prefix".
	Path string `json:"path" jsonschema:"required,minLength=1,description=Local folder or s3://bucket/prefix"`
	// Format is parquet (default), jsonl or csv.
	Format string `json:"format,omitempty" jsonschema:"enum=parquet,enum=jsonl,enum=csv,default=parquet,description=File format"`
	// Compression is zstd (Parquet's default), snappy (Parquet only), gzip (JSONL
	// and CSV only) or none (default of JSONL and CSV).
	Compression string `json:"compression,omitempty" jsonschema:"enum=zstd,enum=gzip,enum=snappy,enum=none,description=zstd (default of Parquet); snappy (Parquet only); gzip (JSONL and CSV only); none (default of JSONL and CSV)"`
	// Roll is the encoded size at which a file ends and the next begins; 0 means
	// 128 MiB. A file may exceed it by a row group (Parquet) or a batch.
	Roll Size `json:"roll,omitempty" jsonschema:"description=Encoded size at which a file ends; default 128MiB"`
	// RowGroup is the size in memory of a Parquet row group's values; 0 means
	// 32 MiB. A slot holds about 1.6 times as much.
	RowGroup Size `json:"row_group,omitempty" jsonschema:"description=Size in memory of a Parquet row group; default 32MiB"`
	// Epoch is the size in memory of the rows between two checkpoints; 0 means
	// 256 MiB. An epoch begins files of its own, so small epochs make small files.
	Epoch Size `json:"epoch,omitempty" jsonschema:"description=Size in memory of the rows between two checkpoints; default 256MiB"`
	// Region, Endpoint and PathStyle are for S3; without them the environment
	// and the shared configuration files decide (AWS_REGION, AWS_ENDPOINT_URL).
	Region    string `json:"region,omitempty" jsonschema:"description=S3 region; default from the environment"`
	Endpoint  string `json:"endpoint,omitempty" jsonschema:"description=S3 endpoint URL; default AWS_ENDPOINT_URL or AWS"`
	PathStyle bool   `json:"path_style,omitempty" jsonschema:"description=Address buckets by path (most S3 servers other than AWS need it)"`
}

// ResourceOptions are the sink options of one resource.
type ResourceOptions struct {
	// Compression, Roll and RowGroup override the configuration's.
	Compression string `json:"compression,omitempty"`
	Roll        Size   `json:"roll,omitempty"`
	RowGroup    Size   `json:"row_group,omitempty"`
}

// Size is a number of bytes, written as a number or with a unit: "64MiB", "10MB".
type Size int64

// UnmarshalJSON implements json.Unmarshaler.
func (s *Size) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	digits := strings.TrimRight(text, "kKmMgGiIbB ")
	unit := strings.ToLower(strings.TrimSpace(text[len(digits):]))
	factor, ok := map[string]int64{
		"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
		"kb": 1e3, "mb": 1e6, "gb": 1e9, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30,
	}[unit]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok || n < 0 || n > (1<<62)/factor {
		return fmt.Errorf("read size %s: want a number of bytes such as 67108864 or \"64MiB\"", b)
	}
	*s = Size(n * factor)
	return nil
}

// JSONSchema implements the schema generator's interface.
func (Size) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
		{Type: "integer", Minimum: "0"},
		{Type: "string", Pattern: `^[0-9]+ ?([kKmMgG]([iI]?[bB])?|[bB])?$`},
	}}
}

// Sink is the files sink.
type Sink struct{}

var _ engine.Sink = (*Sink)(nil)

// NewSink makes the sink.
func NewSink() *Sink { return &Sink{} }

// Spec implements engine.Sink.
func (*Sink) Spec() engine.Spec {
	return engine.Spec{
		Name:     Name,
		Title:    "Files",
		Summary:  "Parquet, JSONL and CSV files in a local folder or an S3 bucket, published by one manifest a table.",
		Config:   &Config{},
		Writes:   []engine.WriteMode{engine.WriteReplace, engine.WriteAppend},
		Delivery: "effectively-once",
		Notes: []string{
			"Effectively-once holds for readers of manifest.json; a listing of the folder also shows files of unfinished runs.",
			"Parquet: decimals of more than 38 digits or of no fixed scale are exact text; intervals are ISO 8601 text; arrays are lists of one dimension from index 1; UUIDs, JSON, times and timestamps have their logical types.",
			"Parquet has no infinite dates and timestamps, no decimal NaN, no time 24:00:00, no arrays of several dimensions or other lower bounds: the value policy decides (fail, null, clamp, set_aside; or text, which stores the column as text).",
			"JSONL: numbers are exact JSON numbers of any length; bytes are base64; dates, times and intervals are ISO 8601 strings; json columns are nested values; arrays are arrays, nested for several dimensions. NaN and infinities of any type and a JSON null in a json column follow the value policy.",
			"CSV (RFC 4180, with a header): NULL is an empty field without quotes, the empty string is \"\"; bytes are base64, arrays JSON text. Infinite dates and decimal NaN follow the value policy; floating-point NaN and infinities are written as NaN, Infinity and -Infinity.",
			"Dates before year 1 and after year 9999 are written in JSONL and CSV with an ISO 8601 expanded year: -0043-03-15 is 44 BC.",
			"Replace removes superseded files right after the publish: readers that hold an older manifest read it again.",
		},
	}
}

// decode reads the configuration and fills defaults in.
func decode(cfg engine.Config) (Config, error) {
	var c Config
	dec := json.NewDecoder(bytes.NewReader(cfg))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return c, engine.Permanentf("", "read the files sink's configuration: %w", err)
	}
	if c.Path == "" {
		return c, engine.Permanentf("set path to a local folder or to s3://bucket/prefix", "the files sink has no path")
	}
	if c.Format == "" {
		c.Format = FormatParquet
	}
	if c.Format != FormatParquet && c.Format != FormatJSONL && c.Format != FormatCSV {
		return c, engine.Permanentf("formats are parquet, jsonl and csv", "the files sink has no format %q", c.Format)
	}
	if c.Compression == "" {
		c.Compression = CompressionNone
		if c.Format == FormatParquet {
			c.Compression = CompressionZstd
		}
	}
	if c.Roll == 0 {
		c.Roll = rollDefault
	}
	if c.RowGroup == 0 {
		c.RowGroup = rowGroupDefault
	}
	if c.Epoch == 0 {
		c.Epoch = epochDefault
	}
	return c, checkCompression(c.Format, c.Compression)
}

func checkCompression(format, compression string) error {
	switch compression {
	case CompressionNone, CompressionZstd:
		return nil
	case CompressionSnappy:
		if format == FormatParquet {
			return nil
		}
	case CompressionGzip:
		if format != FormatParquet {
			return nil
		}
	}
	return engine.Permanentf("parquet takes zstd, snappy and none; jsonl and csv take zstd, gzip and none",
		"format %s can't be compressed with %q", format, compression)
}

// Open implements engine.Sink.
func (*Sink) Open(ctx context.Context, cfg engine.Config, opt engine.OpenOptions) (engine.SinkSession, error) {
	c, err := decode(cfg)
	if err != nil {
		return nil, err
	}
	st, err := openStorage(ctx, c, opt)
	if err != nil {
		return nil, err
	}
	return &session{cfg: c, store: st, slots: max(opt.Slots, 1)}, nil
}

func openStorage(ctx context.Context, c Config, opt engine.OpenOptions) (storage, error) {
	if rest, ok := strings.CutPrefix(c.Path, "s3://"); ok {
		return openS3(ctx, c, rest, opt)
	}
	if scheme, _, ok := strings.Cut(c.Path, "://"); ok {
		return nil, engine.Permanentf("use a local folder or s3://bucket/prefix", "the files sink can't write to %s://", scheme)
	}
	return openLocal(c.Path)
}
