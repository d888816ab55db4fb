package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/engine"
)

// contexts are the servers that the command knows, in a file of mode 0600.
type contexts struct {
	Current  string                   `json:"current"`
	Contexts map[string]serverContext `json:"contexts"`
}

// serverContext is one server and the key for it.
type serverContext struct {
	URL string `json:"url"`
	// KeyFile is where the key is; Key is the key itself if there is no file.
	KeyFile string `json:"key_file,omitempty"`
	Key     string `json:"key,omitempty"`
}

// Environment variables that stand in for a context.
const (
	envURL    = "TRANSHIP_URL"
	envKey    = "TRANSHIP_KEY"
	envConfig = "TRANSHIP_CONFIG_DIR"
)

func (a *app) contextsFile() (string, error) {
	if dir, ok := a.lookup(envConfig); ok && dir != "" {
		return filepath.Join(dir, "contexts.json"), nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", usageError("set "+envConfig+" to a folder", "there is no folder for the configuration: %v", err)
	}
	return filepath.Join(dir, "tranship", "contexts.json"), nil
}

func (a *app) readContexts() (contexts, error) {
	out := contexts{Contexts: map[string]serverContext{}}
	file, err := a.contextsFile()
	if err != nil {
		return out, err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		// The file holds keys: no part of it is repeated.
		return out, usageError("mend or remove it", "the file of contexts %s cannot be read", file)
	}
	if out.Contexts == nil {
		out.Contexts = map[string]serverContext{}
	}
	for _, c := range out.Contexts {
		a.redact.Add(c.Key)
	}
	return out, nil
}

func (a *app) writeContexts(c contexts) error {
	file, err := a.contextsFile()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".contexts-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(append(text, '\n'))
	if closed := tmp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	return nil
}

// server is the server that commands talk to and its key; ok is false if none is
// chosen.
func (a *app) server() (target serverContext, ok bool, err error) {
	if address, set := a.lookup(envURL); set && address != "" && a.context == "" {
		key, _ := a.lookup(envKey)
		return serverContext{URL: address, Key: key}, true, nil
	}
	all, err := a.readContexts()
	if err != nil {
		return target, false, err
	}
	name := a.context
	if name == "" {
		name = all.Current
	}
	if name == "" {
		return target, false, nil
	}
	target, ok = all.Contexts[name]
	if !ok {
		return target, false, usageError("tranship context list lists them", "there is no context %q", name)
	}
	return target, true, nil
}

// key returns the context's key.
func (c serverContext) key() (string, error) {
	if c.KeyFile == "" {
		if c.Key == "" {
			return "", usageError("set "+envKey+", or add the context again with --key-file", "there is no key for %s", c.URL)
		}
		return c.Key, nil
	}
	text, err := os.ReadFile(c.KeyFile)
	if err != nil {
		return "", usageError("the context names it; add the context again if it moved", "read key: %v", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsAny(key, " \n\t") {
		return "", usageError("it holds the key alone", "the key file %s holds no key", c.KeyFile)
	}
	return key, nil
}

func (a *app) contextCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "context", Short: "Choose the server that remote commands talk to", Args: noArgs,
		Long: `Keep servers and their keys by name. The first one added is current until another
is chosen with context use. A file in the user's configuration folder (mode 0600)
holds them; with --key-file only the path of the key.

TRANSHIP_URL and TRANSHIP_KEY in the environment stand in for a context.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(a.contextAdd(), a.contextUse(), a.contextList(), a.contextRemove())
	return c
}

func (a *app) contextAdd() *cobra.Command {
	var target serverContext
	var stdin, plain bool
	c := &cobra.Command{
		Use: "add NAME --url URL --key-file FILE", Short: "Add a server, or change it", Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkURL(target.URL, plain); err != nil {
				return err
			}
			target.URL = strings.TrimSuffix(target.URL, "/")
			switch {
			case stdin == (target.KeyFile != ""):
				return usageError("give one of them", "a context needs --key-file or --key-stdin")
			case stdin:
				text, err := io.ReadAll(io.LimitReader(a.stdin, 64<<10))
				if err != nil {
					return fmt.Errorf("read key: %w", err)
				}
				target.Key = strings.TrimSpace(string(text))
				a.redact.Add(target.Key)
			default:
				path, err := filepath.Abs(target.KeyFile)
				if err != nil {
					return fmt.Errorf("find key file: %w", err)
				}
				target.KeyFile = path
			}
			if _, err := target.key(); err != nil {
				return err
			}
			all, err := a.readContexts()
			if err != nil {
				return err
			}
			all.Contexts[args[0]] = target
			if all.Current == "" {
				all.Current = args[0]
			}
			if err := a.writeContexts(all); err != nil {
				return err
			}
			state := "added"
			if all.Current == args[0] {
				state = "added and current"
			}
			_, err = fmt.Fprintf(a.stdout, "context %s: %s, %s\n", args[0], target.URL, state)
			return err
		},
	}
	c.Flags().StringVar(&target.URL, "url", "", "where the server is, such as http://127.0.0.1:8080")
	c.Flags().StringVar(&target.KeyFile, "key-file", "", "file that holds the API key; it is read at each use")
	c.Flags().BoolVar(&stdin, "key-stdin", false, "read the API key from standard input and keep it")
	c.Flags().BoolVar(&plain, "insecure", false, "send the key over plain http to another machine")
	return c
}

// checkURL refuses addresses over which a key would travel readable.
func checkURL(address string, plain bool) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return usageError("such as https://tranship.example.com", "--url is not the address of a server")
	}
	host := u.Hostname()
	local := host == "localhost" || net.ParseIP(host).IsLoopback()
	if u.Scheme == "http" && !local && !plain {
		return usageError("use https, or --insecure if the network is trusted", "over http to %s anybody between could read the key", host)
	}
	return nil
}

func (a *app) contextUse() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Make a server the current one", Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := a.readContexts()
			if err != nil {
				return err
			}
			if _, ok := all.Contexts[args[0]]; !ok {
				return usageError("tranship context list lists them", "there is no context %q", args[0])
			}
			all.Current = args[0]
			return a.writeContexts(all)
		},
	}
}

func (a *app) contextRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Forget a server; its key file stays", Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := a.readContexts()
			if err != nil {
				return err
			}
			if _, ok := all.Contexts[args[0]]; !ok {
				return usageError("tranship context list lists them", "there is no context %q", args[0])
			}
			delete(all.Contexts, args[0])
			if all.Current == args[0] {
				all.Current = ""
			}
			return a.writeContexts(all)
		},
	}
}

func (a *app) contextList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Short: "List servers", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := a.readContexts()
			if err != nil {
				return err
			}
			type item struct {
				Name    string `json:"name"`
				URL     string `json:"url"`
				KeyFile string `json:"key_file,omitempty"`
				Current bool   `json:"current"`
			}
			items := []item{}
			for name, c := range all.Contexts {
				items = append(items, item{name, c.URL, c.KeyFile, name == all.Current})
			}
			slices.SortFunc(items, func(x, y item) int { return strings.Compare(x.Name, y.Name) })
			if asJSON {
				return writeJSON(a.stdout, map[string]any{"items": items, "next": nil})
			}
			t := newTable("", "NAME", "URL", "KEY")
			for _, i := range items {
				mark, key := "", "kept here"
				if i.Current {
					mark = "*"
				}
				if i.KeyFile != "" {
					key = i.KeyFile
				}
				t.row(mark, i.Name, i.URL, key)
			}
			return t.print(a.stdout, "")
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// needServer is for commands that only a server can answer.
func (a *app) needServer() (serverContext, error) {
	target, ok, err := a.server()
	if err == nil && !ok {
		return target, &exitError{exitUsage, engine.Permanentf("tranship context add NAME --url URL --key-file FILE", "this asks a server, and no context is current")}
	}
	return target, err
}
