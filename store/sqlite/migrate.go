package sqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"slices"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
)

// applicationID marks a SQLite file as ours: "TSHP".
const applicationID = 0x54534850

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations returns the scripts in order; the n-th takes a file from version
// n − 1 to n. A script is never edited once it has landed.
func migrations() ([]string, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	scripts := make([]string, len(names))
	for i, name := range names {
		b, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		scripts[i] = string(b)
	}
	return scripts, nil
}

// checkVersion refuses files that are not ours to write, without changing them,
// and tells whether the file is to be migrated.
func (s *Store) checkVersion(ctx context.Context) (old bool, err error) {
	scripts, err := migrations()
	if err != nil {
		return false, engine.Bugf("read embedded migrations: %w", err)
	}
	var id, version, tables int
	for pragma, into := range map[string]*int{
		"PRAGMA application_id": &id, "PRAGMA user_version": &version, "SELECT count(*) FROM sqlite_schema": &tables,
	} {
		if err := s.write.conn.QueryRowContext(ctx, pragma).Scan(into); err != nil {
			return false, s.fail("read its version", err)
		}
	}
	switch {
	case id == applicationID && version > len(scripts):
		return false, engine.Permanentf("upgrade tranship",
			"open state %s: the file has schema version %d, this tranship knows versions up to %d", s.path, version, len(scripts))
	case id != applicationID && (tables > 0 || version != 0 || id != 0):
		return false, engine.Permanentf("name another file for the state",
			"open state %s: this is a SQLite database of another program", s.path)
	}
	return id != applicationID || version < len(scripts), nil
}

// migrate brings the file to this build's version in one transaction.
func (s *Store) migrate(ctx context.Context) error {
	scripts, err := migrations()
	if err != nil {
		return engine.Bugf("read embedded migrations: %w", err)
	}
	return s.update(ctx, "migrate", func(t *tx) error {
		// Read again inside the transaction: another process may have been first.
		var version int
		if err := t.row("PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		if version >= len(scripts) {
			return nil
		}
		for i := version; i < len(scripts); i++ {
			if err := t.script(scripts[i]); err != nil {
				return fmt.Errorf("to schema version %d: %w", i+1, err)
			}
		}
		// The installation's id is made with the file and never again.
		own, err := uuid.NewRandom()
		if err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO meta (key, value) VALUES ('installation', ?) ON CONFLICT DO NOTHING`, own.String()); err != nil {
			return err
		}
		return t.script(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, len(scripts)))
	})
}
