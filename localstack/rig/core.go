package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Region and Account are those of everything in the emulator.
const (
	Region  = "us-east-1"
	Account = "000000000000"
)

const (
	// startTimeout bounds one start; 8 to 17 s is usual, several times that on a
	// machine that is busy with compiling.
	startTimeout = 3 * time.Minute
	// stopTimeout is how long a core may take to stop by itself: one stop was seen
	// to hang for minutes.
	stopTimeout = 10 * time.Second
)

// services are those that the core loads. Without the list it loads all, which takes
// a minute and a download.
const services = "sqs,sns,s3,secretsmanager,ssm,sts,iam,logs,cloudwatch,events,scheduler," +
	"cloudformation,apigateway,lambda,stepfunctions,kms,ec2"

// Config says how to start a core. The zero value is a throw-away core on a free port.
type Config struct {
	// Port on 127.0.0.1; 0 takes a free one.
	Port int
	// Dir holds the core's files and its log, core.log. It is emptied at the start.
	// Empty: a temporary folder, removed by Stop.
	Dir string
	// FunctionEnv is put into every function's environment: endpoints of services
	// that are not the core's, such as AWS_ENDPOINT_URL_ECS.
	FunctionEnv map[string]string
	// Settings override the core's own variables (its documentation calls them
	// configuration).
	Settings map[string]string
}

// Core is a running LocalStack core, or a foreign endpoint that stands for one.
type Core struct {
	endpoint string
	dir      string
	temp     bool
	external bool

	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when the process has ended
	stop  func() error
}

// Attach uses an emulator that runs elsewhere. Stop leaves it alone.
func Attach(endpoint string) *Core {
	return &Core{endpoint: strings.TrimSuffix(endpoint, "/"), external: true, stop: func() error { return nil }}
}

// Start installs the core if needed, starts it, and waits until it is healthy. The
// core runs until Stop, or until this process ends in whatever way; ctx bounds only
// the start.
func Start(ctx context.Context, config Config) (*Core, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	install := exec.CommandContext(ctx, filepath.Join(root, "localstack", "install"))
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("install LocalStack's core: %w\n%s", err, out)
	}
	c := &Core{dir: config.Dir, done: make(chan struct{})}
	if c.dir == "" {
		c.temp = true
		if c.dir, err = os.MkdirTemp("", "tranship-aws-"); err != nil {
			return nil, err
		}
	} else if err := c.clear(); err != nil {
		return nil, err
	}
	port := config.Port
	if port == 0 {
		if port, err = FreePort(ctx); err != nil {
			return nil, err
		}
	}
	c.endpoint = EndpointOf(port)
	c.stop = sync.OnceValue(c.shutdown)
	if err := c.start(ctx, root, port, config); err != nil {
		tail := c.LogTail()
		return nil, errors.Join(fmt.Errorf("start LocalStack's core: %w; the end of its log:\n%s", err, tail), c.Stop())
	}
	return c, nil
}

func (c *Core) clear() error {
	if err := os.RemoveAll(c.dir); err != nil {
		return err
	}
	return os.MkdirAll(c.dir, 0o755)
}

func (c *Core) start(ctx context.Context, root string, port int, config Config) error {
	if err := os.MkdirAll(filepath.Join(c.dir, "tmp"), 0o755); err != nil {
		return err
	}
	functions := map[string]string{}
	maps.Copy(functions, config.FunctionEnv)
	functionEnv, err := json.Marshal(functions)
	if err != nil {
		return err
	}
	log, err := os.Create(c.LogPath())
	if err != nil {
		return err
	}
	defer log.Close()
	settings := c.settings(root, port, string(functionEnv))
	maps.Copy(settings, config.Settings)

	c.cmd = exec.Command(filepath.Join(root, ".tools", "localstack", "bin", "python"), "-m", "localstack.runtime.main")
	c.cmd.Dir = c.dir
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Env = append(inherited(), pairs(settings)...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is the owner's to pass on
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		close(c.done)
		return err
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return c.waitHealthy(ctx)
}

func (c *Core) settings(root string, port int, functionEnv string) map[string]string {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return map[string]string{
		"PYTHONPATH":                            filepath.Join(root, "localstack", "plugin"),
		"PYTHONUNBUFFERED":                      "1",
		"PYTHONDONTWRITEBYTECODE":               "1",
		"TMPDIR":                                filepath.Join(c.dir, "tmp"),
		"FILESYSTEM_ROOT":                       c.dir,
		"XDG_CACHE_HOME":                        filepath.Join(c.dir, "cache"),
		"GATEWAY_LISTEN":                        address,
		"GATEWAY_SERVER":                        "loopback",
		"LOCALSTACK_HOST":                       address,
		"OVERRIDE_IN_DOCKER":                    "0",
		"DNS_ADDRESS":                           "0",
		"SKIP_SSL_CERT_DOWNLOAD":                "1",
		"DISABLE_EVENTS":                        "1",
		"EAGER_SERVICE_LOADING":                 "1",
		"CFN_IGNORE_UNSUPPORTED_RESOURCE_TYPES": "0",
		"LAMBDA_RUNTIME_EXECUTOR":               "process",
		"SERVICES":                              services,
		"LAMBDA_EVENT_SOURCE_MAPPING_POLL_INTERVAL_SEC":             "0.05",
		"LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_EMPTY_POLL_SEC": "0.2",
		"LAMBDA_RETRY_BASE_DELAY":                                   "1",
		"TRANSHIP_RIG_OWNER":                                        "stdin",
		"TRANSHIP_RIG_FUNCTION_ENV":                                 functionEnv,
	}
}

// inherited is what the core takes over from our environment: nothing of AWS, of
// another LocalStack, or of Python.
func inherited() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "USER"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func pairs(m map[string]string) []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		env = append(env, name+"="+m[name])
	}
	return env
}

// EndpointOf is the URL of a core on a port.
func EndpointOf(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

// Endpoint is the URL of all services.
func (c *Core) Endpoint() string { return c.endpoint }

// External says whether the emulator was started by somebody else.
func (c *Core) External() bool { return c.external }

// Environ is what a process needs to find this AWS: region, endpoint and the
// emulator's credentials, which protect nothing.
func (c *Core) Environ() map[string]string {
	return map[string]string{
		"AWS_ACCESS_KEY_ID":     "test",
		"AWS_SECRET_ACCESS_KEY": "test",
		"AWS_REGION":            Region,
		"AWS_DEFAULT_REGION":    Region,
		"AWS_ENDPOINT_URL":      c.endpoint,
		"AWS_ENDPOINT_URL_S3":   c.endpoint,
	}
}

// AWS is the configuration of SDK clients for this core.
func (c *Core) AWS() aws.Config {
	return aws.Config{
		Region:       Region,
		BaseEndpoint: aws.String(c.endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
}

// LogPath is where the core logs; empty for an external one.
func (c *Core) LogPath() string {
	if c.external {
		return ""
	}
	return filepath.Join(c.dir, "core.log")
}

// LogTail is the end of the core's log.
func (c *Core) LogTail() string {
	const most = 8 << 10
	log, err := os.ReadFile(c.LogPath())
	if err != nil {
		return ""
	}
	return string(log[max(0, len(log)-most):])
}

// Pid is the core's process.
func (c *Core) Pid() int {
	if c.cmd == nil || c.cmd.Process == nil {
		return 0
	}
	return c.cmd.Process.Pid
}

// Done is closed when the core's process has ended.
func (c *Core) Done() <-chan struct{} { return c.done }

// Stop ends the core and its functions: by SIGTERM, after ten seconds by SIGKILL.
// Later calls return what the first one did.
func (c *Core) Stop() error { return c.stop() }

func (c *Core) shutdown() error {
	if c.Pid() != 0 {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.done:
		case <-time.After(stopTimeout):
			_ = c.cmd.Process.Kill()
			<-c.done
		}
		_ = c.stdin.Close()
	}
	err := killEnvironments(c.dir)
	if c.temp {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// killEnvironments ends the functions' processes that a killed core left, frozen as
// they may be.
func killEnvironments(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, "environments"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// The number may have gone to another process meanwhile; ours work in the
		// core's folder.
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && strings.HasPrefix(cwd, dir) {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
	return err
}

// moduleRoot finds the checkout: tests run in their package's folder.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "localstack", "install")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find localstack/install: not in a checkout of Tranship")
		}
		dir = parent
	}
}

// FreePort finds a port on 127.0.0.1 that nobody listens on now.
func FreePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
