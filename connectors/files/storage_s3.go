package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// giveUpDefault bounds how long the first contact is tried.
const giveUpDefault = 60 * time.Second

// s3Storage keeps objects in a bucket below a prefix.
type s3Storage struct {
	client *s3.Client
	bucket string
	prefix string
	host   string
	work   string
}

var _ storage = (*s3Storage)(nil)

// openS3 uses the default chain of credentials, and asks for the bucket once so
// that a wrong name or missing rights show before anything is read.
func openS3(ctx context.Context, c Config, place string, opt engine.OpenOptions) (*s3Storage, error) {
	bucket, prefix, _ := strings.Cut(place, "/")
	prefix = strings.Trim(prefix, "/")
	if bucket == "" {
		return nil, engine.Permanentf("write the path as s3://bucket/prefix", "path s3://%s names no bucket", place)
	}
	giveUp := opt.GiveUp
	if giveUp <= 0 {
		giveUp = giveUpDefault
	}
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	var loads []func(*config.LoadOptions) error
	if c.Region != "" {
		loads = append(loads, config.WithRegion(c.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, loads...)
	if err != nil {
		return nil, engine.Permanentf("", "read the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1" // S3 servers other than AWS don't care
	}
	s := &s3Storage{bucket: bucket, work: opt.WorkDir}
	if prefix != "" {
		s.prefix = prefix + "/"
	}
	s.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = c.PathStyle
		o.RetryMaxAttempts = 5
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
		if o.BaseEndpoint != nil {
			if u, err := url.Parse(*o.BaseEndpoint); err == nil {
				s.host = u.Host
			}
		}
	})
	if _, err := s.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &s.bucket}); err != nil {
		return nil, s.fail("open bucket "+bucket, err)
	}
	return s, nil
}

func (s *s3Storage) identity() string {
	id := "s3://" + s.bucket + "/" + strings.TrimSuffix(s.prefix, "/")
	if s.host != "" {
		id += "?endpoint=" + s.host
	}
	return id
}

func (s *s3Storage) key(k string) *string { return aws.String(s.prefix + k) }

func (s *s3Storage) prepare(context.Context, string) error { return nil }

func (s *s3Storage) stage(string) (*os.File, error) {
	f, err := os.CreateTemp(s.work, "tranship-*.part")
	if err != nil {
		return nil, localError("make a temporary file", err)
	}
	return f, nil
}

// open fetches the object into a temporary file; the SDK verifies the checksum
// that S3 keeps.
func (s *s3Storage) open(ctx context.Context, key string) (io.ReaderAt, int64, func(), error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.bucket, Key: s.key(key), ChecksumMode: types.ChecksumModeEnabled,
	})
	if err != nil {
		return nil, 0, nil, s.fail("read back "+key, err)
	}
	defer func() { _ = out.Body.Close() }()
	f, err := s.stage("")
	if err != nil {
		return nil, 0, nil, err
	}
	n, err := io.Copy(f, out.Body)
	if err != nil {
		discard(f)
		return nil, 0, nil, s.fail("read back "+key, err)
	}
	return f, n, func() { discard(f) }, nil
}

func (s *s3Storage) size(ctx context.Context, key string) (int64, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: s.key(key)})
	if isMissing(err) {
		return 0, errNotFound
	}
	if err != nil {
		return 0, s.fail("look at "+key, err)
	}
	return aws.ToInt64(out.ContentLength), nil
}

func (s *s3Storage) read(ctx context.Context, key string) ([]byte, string, error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.bucket, Key: s.key(key), ChecksumMode: types.ChecksumModeEnabled,
	})
	if isMissing(err) {
		return nil, "", errNotFound
	}
	if err != nil {
		return nil, "", s.fail("read "+key, err)
	}
	defer func() { _ = out.Body.Close() }()
	b, err := io.ReadAll(out.Body)
	if err != nil {
		return nil, "", s.fail("read "+key, err)
	}
	return b, aws.ToString(out.ETag), nil
}

// swap writes with If-Match, or with If-None-Match where nothing was found. An
// answer that was lost and tried again by the SDK looks like a conflict; the
// caller reads again and finds its own version (P4).
func (s *s3Storage) swap(ctx context.Context, key string, data []byte, version string) error {
	in := &s3.PutObjectInput{
		Bucket: &s.bucket, Key: s.key(key), Body: bytes.NewReader(data),
		ContentType:       aws.String("application/json"),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
		ChecksumCRC32C:    aws.String(checksum(integrity.CRC(0, data))),
	}
	if version == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = aws.String(version)
	}
	_, err := s.client.PutObject(ctx, in)
	if isConflict(err) || (version != "" && isMissing(err)) {
		return errConflict
	}
	if err != nil {
		return s.fail("write "+key, err)
	}
	return nil
}

func (s *s3Storage) list(ctx context.Context, prefix string, fn func(string) error) error {
	full := s.prefix + prefix
	if prefix != "" {
		full += "/"
	}
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &full})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return s.fail("list "+full, err)
		}
		for _, o := range page.Contents {
			if err := fn(strings.TrimPrefix(aws.ToString(o.Key), s.prefix)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *s3Storage) remove(ctx context.Context, keys []string) error {
	const atOnce = 1000 // S3's limit
	for len(keys) > 0 {
		n := min(len(keys), atOnce)
		ids := make([]types.ObjectIdentifier, n)
		for i, k := range keys[:n] {
			ids[i].Key = s.key(k)
		}
		out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
			Bucket: &s.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
		})
		if err != nil {
			return s.fail("remove superseded objects", err)
		}
		if len(out.Errors) > 0 {
			e := out.Errors[0]
			return engine.Permanentf("grant s3:DeleteObject on the bucket", "remove %s: %s (%d objects in all)",
				aws.ToString(e.Key), aws.ToString(e.Message), len(out.Errors))
		}
		keys = keys[n:]
	}
	return nil
}

// tidy ends uploads that a killed process began: no listing shows them, and
// they are billed.
func (s *s3Storage) tidy(ctx context.Context, folder string, keep func(string) bool) error {
	full := s.prefix + folder + "/"
	pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{Bucket: &s.bucket, Prefix: &full})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return s.fail("list unfinished uploads", err)
		}
		for _, u := range page.Uploads {
			rel, ours := strings.CutPrefix(aws.ToString(u.Key), full)
			if !ours || keep(rel) {
				continue
			}
			_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
				Bucket: &s.bucket, Key: u.Key, UploadId: u.UploadId,
			})
			if err != nil && !isMissing(err) {
				return s.fail("end an unfinished upload", err)
			}
		}
	}
	return nil
}

func (s *s3Storage) close() {}

// fail classifies an error of S3 where it is met.
func (s *s3Storage) fail(doing string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return classifyS3(doing, s.bucket, err)
}
