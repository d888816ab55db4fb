package postgres

import (
	"github.com/tranship-io/tranship/connectors/postgres/pgsink"
	"github.com/tranship-io/tranship/engine"
)

// SinkConfig is how the sink connects and where it writes.
type SinkConfig = pgsink.Config

// NewSink returns the PostgreSQL sink.
func NewSink() engine.Sink { return pgsink.New() }
