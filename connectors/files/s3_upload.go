package files

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

const (
	// partSize is the size of an upload's parts, and of what goes up in one piece.
	partSize = 16 << 20
	// maxParts keeps below S3's limit of 10,000: larger files have larger parts.
	maxParts = 9000
	// partsAtOnce are uploaded in parallel. Parts stream from the staged file, so
	// they take no memory of their own.
	partsAtOnce = 4
	// abortTime bounds the clean-up after a failed upload.
	abortTime = 10 * time.Second
)

// checksum writes a CRC32C as S3 does.
func checksum(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// put uploads a staged file. S3 compares the CRC32C of each part and of the
// whole with ours, and refuses a name that exists (P11).
func (s *s3Storage) put(ctx context.Context, staged *os.File, o object) error {
	defer discard(staged)
	var err error
	if o.size <= partSize {
		_, err = s.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &s.bucket, Key: s.key(o.key), Body: io.NewSectionReader(staged, 0, o.size),
			ContentLength:     aws.Int64(o.size),
			IfNoneMatch:       aws.String("*"),
			ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
			ChecksumCRC32C:    aws.String(checksum(o.crc32c)),
		})
	} else {
		err = s.multipart(ctx, staged, o)
	}
	if isConflict(err) {
		return s.sameObject(ctx, o)
	}
	if err != nil {
		return s.fail("write "+o.key, err)
	}
	return nil
}

// sameObject settles a refused create: names carry digests, so an object of the
// same size under the name is the same content, written by an earlier try.
func (s *s3Storage) sameObject(ctx context.Context, o object) error {
	n, err := s.size(ctx, o.key)
	if err != nil {
		return engine.Retryablef("write %s: it conflicts with another write: %w", o.key, err)
	}
	if n != o.size {
		return engine.Bugf("object %s exists with %d bytes, %d were to be written", o.key, n, o.size)
	}
	return nil
}

func (s *s3Storage) multipart(ctx context.Context, staged *os.File, o object) (err error) {
	begun, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &s.bucket, Key: s.key(o.key),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
		ChecksumType:      types.ChecksumTypeFullObject,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		// The context may be what ended the upload.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
		defer cancel()
		_, _ = s.client.AbortMultipartUpload(clean, &s3.AbortMultipartUploadInput{
			Bucket: &s.bucket, Key: s.key(o.key), UploadId: begun.UploadId,
		})
	}()
	size := max(int64(partSize), (o.size+maxParts-1)/maxParts)
	parts := make([]types.CompletedPart, (o.size+size-1)/size)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(partsAtOnce)
	for i := range parts {
		g.Go(func() error {
			from := int64(i) * size
			n := min(size, o.size-from)
			crc, err := sectionCRC(io.NewSectionReader(staged, from, n))
			if err != nil {
				return localError("read the staged file", err)
			}
			out, err := s.client.UploadPart(gctx, &s3.UploadPartInput{
				Bucket: &s.bucket, Key: s.key(o.key), UploadId: begun.UploadId,
				PartNumber: aws.Int32(int32(i + 1)), Body: io.NewSectionReader(staged, from, n),
				ContentLength:     aws.Int64(n),
				ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
				ChecksumCRC32C:    aws.String(checksum(crc)),
			})
			if err != nil {
				return err
			}
			parts[i] = types.CompletedPart{
				PartNumber: aws.Int32(int32(i + 1)), ETag: out.ETag,
				ChecksumCRC32C: aws.String(checksum(crc)),
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	_, err = s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &s.bucket, Key: s.key(o.key), UploadId: begun.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		IfNoneMatch:     aws.String("*"),
		ChecksumType:    types.ChecksumTypeFullObject,
		ChecksumCRC32C:  aws.String(checksum(o.crc32c)),
	})
	return err
}

func sectionCRC(r io.Reader) (uint32, error) {
	buf := make([]byte, 256<<10)
	var crc uint32
	for {
		n, err := r.Read(buf)
		crc = integrity.CRC(crc, buf[:n])
		if err == io.EOF {
			return crc, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
