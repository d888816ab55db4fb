// Package installation puts a whole installation of Tranship on emulated AWS: a
// PostgreSQL server, LocalStack's core, the ECS shim, the driver of schedules, the
// proxies that make SQS and S3 fail, and the stacks of infra deployed into it. All
// of it is on 127.0.0.1 and ends with the process.
package installation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/tranship-io/tranship/internal/pgtest"
	"github.com/tranship-io/tranship/localstack/ecs"
	"github.com/tranship-io/tranship/localstack/faults"
	"github.com/tranship-io/tranship/localstack/rig"
	"github.com/tranship-io/tranship/localstack/schedules"
)

// Name of the installation.
const Name = "tranship"

// taskCluster, taskFamily and taskContainer name where tasks run; nothing but the
// shim knows them.
const (
	taskClusterName = "rig"
	taskCluster     = "arn:aws:ecs:" + rig.Region + ":" + rig.Account + ":cluster/" + taskClusterName
	taskFamily      = Name + "-worker"
	taskMemory      = "2048"
)

// Config says where an installation is made.
type Config struct {
	// Root is the checkout. Required.
	Root string
	// Dir is for files, logs and the first key. It is emptied. Required.
	Dir string
	// Port of the core on 127.0.0.1; 0 takes a free one.
	Port int
	// Log tells how far the start is. Required.
	Log *slog.Logger
}

// Installation is a running one.
type Installation struct {
	config   Config
	core     *rig.Core
	database *pgtest.Server
	shim     *ecs.Shim
	driver   *schedules.Driver

	servers []*http.Server
	env     map[string]string
	// password of the control plane's login at the database.
	password string
	loops    sync.WaitGroup
	cancel   context.CancelFunc
}

// Start makes everything; ctx bounds only the start. On an error nothing is left
// running.
func Start(ctx context.Context, config Config) (*Installation, error) {
	i := &Installation{config: config, env: map[string]string{}, cancel: func() {}}
	if err := i.start(ctx); err != nil {
		return nil, errors.Join(err, i.Stop())
	}
	return i, nil
}

func (i *Installation) start(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"folder", i.makeFolder},
		{"functions of this machine's architecture", i.buildFunctions},
		{"PostgreSQL", i.startDatabase},
		{"AWS", i.startCore},
		{"schedules", i.startDriver},
		{"stacks", i.deploy},
		{"first key", i.fetchKey},
	} {
		began := time.Now()
		i.config.Log.Info("starting", "part", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		i.config.Log.Info("started", "part", step.name, "seconds", int(time.Since(began).Seconds()))
	}
	return nil
}

func (i *Installation) path(elements ...string) string {
	return filepath.Join(append([]string{i.config.Dir}, elements...)...)
}

func (i *Installation) makeFolder(context.Context) error {
	if err := os.RemoveAll(i.config.Dir); err != nil {
		return err
	}
	return os.MkdirAll(i.path("tasks"), 0o755)
}

// startCore starts what functions and we call AWS: the core, and in front of it the
// shim for ECS and the proxies, which functions are told of.
func (i *Installation) startCore(ctx context.Context) error {
	port := i.config.Port
	if port == 0 {
		var err error
		if port, err = rig.FreePort(ctx); err != nil {
			return err
		}
	}
	endpoint := rig.EndpointOf(port)
	endpoints := map[string]string{}
	for _, service := range []string{"SQS", "S3"} {
		proxy, err := faults.New(endpoint, i.config.Log)
		if err != nil {
			return err
		}
		if endpoints["AWS_ENDPOINT_URL_"+service], err = i.serve(ctx, proxy); err != nil {
			return err
		}
	}
	i.shim = ecs.New(ecs.Config{
		Program: i.path("worker"), Container: "worker", Environment: i.taskEnvironment, Events: i.putTaskEvent,
		StopTimeout: 30 * time.Second, LogDir: i.path("tasks"), Log: i.config.Log,
	})
	var err error
	if endpoints["AWS_ENDPOINT_URL_ECS"], err = i.serve(ctx, i.shim); err != nil {
		return err
	}
	if i.core, err = rig.Start(ctx, rig.Config{Port: port, Dir: i.path("core"), FunctionEnv: endpoints}); err != nil {
		return err
	}
	maps.Copy(i.env, i.core.Environ())
	i.env["AWS_ENDPOINT_URL_ECS"] = endpoints["AWS_ENDPOINT_URL_ECS"]
	i.env["TRANSHIP_RIG_ECS"] = endpoints["AWS_ENDPOINT_URL_ECS"]
	i.env["TRANSHIP_RIG_SQS"] = endpoints["AWS_ENDPOINT_URL_SQS"]
	i.env["TRANSHIP_RIG_S3"] = endpoints["AWS_ENDPOINT_URL_S3"]
	return nil
}

func (i *Installation) startDriver(ctx context.Context) error {
	i.driver = schedules.New(i.core.AWS(), i.config.Log)
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i.cancel = cancel
	i.loops.Go(func() { i.driver.Run(running) })
	url, err := i.serve(ctx, i.control())
	i.env["TRANSHIP_RIG_CONTROL"] = url
	return err
}

// serve listens on a free port of 127.0.0.1.
func (i *Installation) serve(ctx context.Context, handler http.Handler) (url string, err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	i.servers = append(i.servers, server)
	i.loops.Go(func() { _ = server.Serve(listener) }) // ends by Close
	return "http://" + listener.Addr().String(), nil
}

// Env is what the rig's users need: TRANSHIP_URL, TRANSHIP_KEY_FILE, DATABASE_URL,
// the AWS variables, and the addresses of the rig's own controls.
func (i *Installation) Env() map[string]string { return maps.Clone(i.env) }

// Done is closed when the core has ended by itself.
func (i *Installation) Done() <-chan struct{} { return i.core.Done() }

// Stop ends everything.
func (i *Installation) Stop() error {
	i.cancel()
	var failures []error
	if i.shim != nil {
		i.shim.Close()
	}
	if i.core != nil {
		failures = append(failures, i.core.Stop())
	}
	for _, server := range i.servers {
		failures = append(failures, server.Close())
	}
	i.loops.Wait()
	if i.database != nil {
		failures = append(failures, i.database.Stop())
	}
	return errors.Join(failures...)
}

// architecture is this machine's in the words of infra's settings.
func architecture() string { return runtime.GOARCH }
