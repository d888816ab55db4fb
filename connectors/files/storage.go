package files

import (
	"context"
	"errors"
	"io"
	"os"
)

// errConflict tells that a compare-and-swap found another version.
var errConflict = errors.New("somebody else changed it meanwhile")

// errNotFound tells that there is nothing under a key.
var errNotFound = errors.New("it does not exist")

// storage keeps objects under keys with forward slashes, relative to the
// configured path. A folder and an S3 bucket implement it.
type storage interface {
	// identity names the place, without secrets.
	identity() string
	// prepare makes a folder ready.
	prepare(ctx context.Context, folder string) error
	// stage opens a temporary file whose content will be put below the folder.
	stage(folder string) (*os.File, error)
	// put stores a staged file's content durably under a key that must not exist
	// yet. A key that exists with the same size is the same content, since names
	// carry digests; with another size it is an error. The staged file is
	// closed and gone afterwards, whatever the outcome.
	put(ctx context.Context, staged *os.File, o object) error
	// open returns an object's content as stored, for reading back.
	open(ctx context.Context, key string) (io.ReaderAt, int64, func(), error)
	// size returns an object's size, or errNotFound.
	size(ctx context.Context, key string) (int64, error)
	// read returns a small object and its version, or errNotFound.
	read(ctx context.Context, key string) (data []byte, version string, err error)
	// swap replaces a small object if it still has the version; "" means that it
	// must not exist. It returns errConflict otherwise.
	swap(ctx context.Context, key string, data []byte, version string) error
	// list calls fn for every key below the prefix, temporary files included.
	list(ctx context.Context, prefix string, fn func(key string) error) error
	// remove deletes objects; those that are gone are no error.
	remove(ctx context.Context, keys []string) error
	// tidy removes what unfinished puts of the folder left that list can't see,
	// for run folders that keep says no to.
	tidy(ctx context.Context, folder string, keep func(key string) bool) error
	close()
}

// object is what put stores.
type object struct {
	key  string
	size int64
	// crc32c is the checksum of the content.
	crc32c uint32
}

// discard closes and removes a staged file.
func discard(f *os.File) {
	if f != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
}
