package serve

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/internal/embedpg"
)

const ownDatabase = "tranship"

// startOwn starts a PostgreSQL server of this process's own, and returns the URL
// of its database. It ends with the process.
func startOwn(ctx context.Context, c *Config) (server *embedpg.Server, url string, err error) {
	// Others may pass through the folder: as root, the server runs as another user.
	if err := os.MkdirAll(c.Folder, 0o755); err != nil {
		return nil, "", fmt.Errorf("make folder %s: %w", c.Folder, err)
	}
	dir, err := embedpg.Place(filepath.Join(c.Folder, "postgres"))
	if err != nil {
		return nil, "", fmt.Errorf("find a place for the database: %w", err)
	}
	server, err = embedpg.Start(ctx, embedpg.Config{
		Version: c.PostgresVersion, Cache: c.PostgresCache, Repository: c.PostgresRepository, DataDir: dir,
		Params: map[string]string{"max_connections": "100", "shared_buffers": "64MB"},
	})
	if err != nil {
		return nil, "", fmt.Errorf("start the database of this process: %w", err)
	}
	if err := ensureDatabase(ctx, server); err != nil {
		_ = server.Stop()
		return nil, "", err
	}
	url = server.URL(ownDatabase)
	return server, url, nil
}

func ensureDatabase(ctx context.Context, server *embedpg.Server) error {
	conn, err := pgx.Connect(ctx, server.URL(""))
	if err != nil {
		return fmt.Errorf("connect to the database of this process: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var there bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, ownDatabase).Scan(&there); err != nil {
		return fmt.Errorf("look for the database %q: %w", ownDatabase, err)
	}
	if there {
		return nil
	}
	if err := server.CreateDatabase(ctx, ownDatabase); err != nil {
		return fmt.Errorf("create the database %q: %w", ownDatabase, err)
	}
	return nil
}
