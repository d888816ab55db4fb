package files

import (
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

func TestS3EveryFormat(t *testing.T) {
	for _, format := range []string{FormatParquet, FormatJSONL, FormatCSV} {
		t.Run(format, func(t *testing.T) {
			r := openRig(t, s3Config(t, format))
			tb := allKinds()
			target := r.plan(r.request(tb, run1, 1, engine.WriteReplace))
			rc, err := r.apply(target, tb, 2)
			require.NoError(t, err)
			require.True(t, rc.Verified)
			r.publish(target, rc)
			m := r.manifest(target)
			require.EqualValues(t, 3, m.Rows)
			require.Equal(t, []string{m.Files[0].Name}, r.dataKeys(target))

			// The next run replaces it, and the old file goes.
			target2 := r.plan(r.request(tb, run2, 2, engine.WriteReplace))
			rc, err = r.apply(target2, tb, 2)
			require.NoError(t, err)
			require.Len(t, r.dataKeys(target2), 2, "the old file stays until the publish")
			r.publish(target2, rc)
			require.Equal(t, []string{r.manifest(target2).Files[0].Name}, r.dataKeys(target2))

			// The older run comes late.
			_, err = r.s.Publish(t.Context(), publication(target, r.at, rc))
			require.NoError(t, err, "run 1 was published before: nothing happens")
			require.Equal(t, run2, r.manifest(target).RunID)

			found, err := r.s.(engine.Adopter).Adopt(t.Context(), target2.Route)
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.EqualValues(t, 2, found[0].Ordinal)
		})
	}
}

// staged writes content into a staged file of the storage.
func stagedFile(t *testing.T, st storage, content []byte) (*os.File, object) {
	t.Helper()
	f, err := st.stage("t")
	require.NoError(t, err)
	_, err = f.Write(content)
	require.NoError(t, err)
	return f, object{key: "t/" + run1 + "/0/1-1-aa.parquet", size: int64(len(content)), crc32c: integrity.CRC(0, content)}
}

func testStorage(t *testing.T, st storage, big int) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, st.prepare(ctx, "t"))
	content := []byte(strings.Repeat("0123456789abcdef", big/16))
	f, o := stagedFile(t, st, content)
	require.NoError(t, st.put(ctx, f, o))
	f, o = stagedFile(t, st, content)
	require.NoError(t, st.put(ctx, f, o), "the same content under the same name is no error")
	f, other := stagedFile(t, st, content[:len(content)-1])
	require.Error(t, st.put(ctx, f, other), "other content is never written over it")

	n, err := st.size(ctx, o.key)
	require.NoError(t, err)
	require.EqualValues(t, len(content), n)
	_, err = st.size(ctx, "t/none")
	require.ErrorIs(t, err, errNotFound)
	at, size, done, err := st.open(ctx, o.key)
	require.NoError(t, err)
	require.EqualValues(t, len(content), size)
	tail := make([]byte, 16)
	_, err = at.ReadAt(tail, size-16)
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", string(tail))
	done()

	_, _, err = st.read(ctx, "t/manifest.json")
	require.ErrorIs(t, err, errNotFound)
	require.ErrorIs(t, st.swap(ctx, "t/manifest.json", []byte("x"), "12-00"), errConflict)
	require.NoError(t, st.swap(ctx, "t/manifest.json", []byte("one"), ""))
	require.ErrorIs(t, st.swap(ctx, "t/manifest.json", []byte("two"), ""), errConflict)
	data, version, err := st.read(ctx, "t/manifest.json")
	require.NoError(t, err)
	require.Equal(t, "one", string(data))
	require.NoError(t, st.swap(ctx, "t/manifest.json", []byte("two"), version))
	require.ErrorIs(t, st.swap(ctx, "t/manifest.json", []byte("three"), version), errConflict)

	var keys []string
	require.NoError(t, st.list(ctx, "t", func(k string) error {
		if !strings.HasSuffix(k, ".lock") {
			keys = append(keys, k)
		}
		return nil
	}))
	require.ElementsMatch(t, []string{o.key, "t/manifest.json"}, keys)
	require.NoError(t, st.remove(ctx, []string{o.key, o.key, "t/none"}))
	_, err = st.size(ctx, o.key)
	require.ErrorIs(t, err, errNotFound)
}

func TestLocalStorage(t *testing.T) {
	t.Parallel()
	st, err := openLocal(t.TempDir())
	require.NoError(t, err)
	testStorage(t, st, 1<<20)
}

func TestS3Storage(t *testing.T) {
	r := openRig(t, s3Config(t, FormatParquet))
	st := r.s.(*session).store.(*s3Storage)
	t.Run("one piece", func(t *testing.T) { testStorage(t, st, 1<<20) })
}

// TestS3Multipart: more than one part, and a wrong checksum is refused by S3.
func TestS3Multipart(t *testing.T) {
	r := openRig(t, s3Config(t, FormatParquet))
	st := r.s.(*session).store.(*s3Storage)
	testStorage(t, st, 2*partSize+4096)

	f, o := stagedFile(t, st, []byte("some bytes"))
	o.crc32c++
	err := st.put(t.Context(), f, o)
	require.Error(t, err)
	require.Equal(t, engine.Retryable, engine.ClassOf(err), "%v", err)
	_, err = st.size(t.Context(), o.key)
	require.ErrorIs(t, err, errNotFound)

	// An upload that a killed process left is ended by the sweep of its run.
	_, err = st.client.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{
		Bucket: &st.bucket, Key: st.key(o.key), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
	})
	require.NoError(t, err)
	uploads := func() int {
		out, err := st.client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{
			Bucket: &st.bucket, Prefix: aws.String(st.prefix + "t/"),
		})
		require.NoError(t, err)
		return len(out.Uploads)
	}
	require.Equal(t, 1, uploads())
	require.NoError(t, st.tidy(t.Context(), "t", func(k string) bool { return strings.HasPrefix(k, run1) }))
	require.Equal(t, 1, uploads())
	require.NoError(t, st.tidy(t.Context(), "t", func(string) bool { return false }))
	require.Equal(t, 0, uploads())
}

func TestS3Refusals(t *testing.T) {
	cfg := s3Config(t, FormatParquet)
	cfg["path"] = "s3://no-such-bucket-here/x"
	_, err := NewSink().Open(t.Context(), mustConfig(t, cfg), engine.OpenOptions{})
	require.ErrorContains(t, err, "no-such-bucket-here")
	require.Equal(t, engine.Permanent, engine.ClassOf(err))

	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-private")
	_, err = NewSink().Open(t.Context(), mustConfig(t, cfg), engine.OpenOptions{})
	require.Error(t, err)
	require.Equal(t, engine.Permanent, engine.ClassOf(err), "%v", err)
	require.NotContains(t, err.Error(), "wrong-and-private")
}
