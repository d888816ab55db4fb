// Command servedemo starts tranship serve on a PostgreSQL server of its own, with
// a demo organization, two connections, a pipeline, and a schedule that fires
// every minute. Everything lies in the folder .tranship; run again, it goes on.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(command()) }

func command() int {
	d := demo{}
	flag.StringVar(&d.binary, "binary", "bin/tranship", "the binary to run")
	flag.StringVar(&d.listen, "listen", "127.0.0.1:8080", "address of the API")
	flag.StringVar(&d.folder, "folder", ".tranship", "folder for everything")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "servedemo:", err)
		return 1
	}
	return 0
}

type demo struct{ binary, listen, folder string }

func (d *demo) run(ctx context.Context) error {
	key := filepath.Join(d.folder, "admin.key")
	if err := os.MkdirAll(d.folder, 0o755); err != nil {
		return err
	}
	// No context: it is asked to stop below, so that it can hand over.
	cmd := exec.Command(d.binary, "serve", "--listen", d.listen, "--folder", d.folder, "--bootstrap-key-file", key, "--organization", "demo")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s (make build): %w", d.binary, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err := d.furnish(ctx, key, ended)
	if err == nil {
		_, _ = fmt.Fprintf(os.Stderr, `
The control plane is at http://%[1]s (documentation: http://%[1]s/docs). Try, in another terminal:

  %[2]s context add demo --url http://%[1]s --key-file %[3]s
  %[2]s runs list
  %[2]s runs start shop --wait

The pipeline shop writes to %[4]s; its schedule fires every minute. Ctrl-C stops.

`, d.listen, d.binary, key, filepath.Join(d.folder, "demo"))
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case last := <-ended:
		err = errors.Join(err, last)
	case <-time.After(time.Minute):
		err = errors.Join(err, cmd.Process.Kill())
	}
	return err
}

// furnish waits until the process answers, and makes what is not there yet.
func (d *demo) furnish(ctx context.Context, keyFile string, ended <-chan error) error {
	for {
		if code, _, err := d.call(ctx, "", http.MethodGet, "/healthz", nil); err == nil && code == http.StatusOK {
			break
		}
		select {
		case err := <-ended:
			return fmt.Errorf("serve ended: %w", err)
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	text, err := os.ReadFile(keyFile)
	if err != nil {
		return fmt.Errorf("read the admin key: %w", err)
	}
	target, err := filepath.Abs(filepath.Join(d.folder, "demo"))
	if err != nil {
		return err
	}
	for _, x := range []struct {
		path string
		body map[string]any
	}{
		{"/v1/connections", map[string]any{"name": "sample-shop", "role": "source", "connector": "sample", "config": map[string]any{"rows": 20000, "splits": 4}}},
		{"/v1/connections", map[string]any{"name": "parquet-files", "role": "sink", "connector": "files", "config": map[string]any{"path": target}}},
		{"/v1/pipelines", map[string]any{"name": "shop", "description": "A sample shop's orders as Parquet files", "graph": map[string]any{
			"nodes": []any{
				map[string]any{"id": "shop", "role": "source", "connection": "sample-shop"},
				map[string]any{"id": "files", "role": "sink", "connection": "parquet-files"},
			},
			"edges": []any{map[string]any{"from": "shop", "to": "files", "resource": "sample.orders"}},
		}}},
		{"/v1/schedules", map[string]any{"name": "every-minute", "pipeline": "shop", "cron": "* * * * *"}},
	} {
		code, answer, err := d.call(ctx, strings.TrimSpace(string(text)), http.MethodPost, x.path, x.body)
		if err != nil {
			return err
		}
		if code >= 300 && code != http.StatusConflict { // it is there already
			return fmt.Errorf("make %s: %d %s", x.body["name"], code, answer)
		}
	}
	return nil
}

func (d *demo) call(ctx context.Context, key, method, path string, body any) (int, []byte, error) {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+d.listen+path, in)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}
