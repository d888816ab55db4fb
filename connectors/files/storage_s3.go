package files

import (
	"context"
	"io"
	"os"

	"github.com/tranship-io/tranship/engine"
)

var _ = os.Stdin
var _ io.Reader

func openS3(ctx context.Context, c Config, rest string, opt engine.OpenOptions) (storage, error) {
	return nil, engine.Permanentf("", "not yet")
}
