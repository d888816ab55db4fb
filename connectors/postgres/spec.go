package postgres

import (
	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/connectors/postgres/pgsource"
	"github.com/tranship-io/tranship/engine"
)

// Config is how source and sink connect.
type Config = pgconf.Config

// NewSource returns the PostgreSQL source.
func NewSource() engine.Source { return pgsource.New() }
