package contracts

import (
	"testing"

	"github.com/tranship-io/tranship/localstack/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
