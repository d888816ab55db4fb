package files

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
)

// weedServer is a SeaweedFS process: a real S3 server with conditional writes.
type weedServer struct {
	once     sync.Once
	err      error
	cmd      *exec.Cmd
	dir      string
	endpoint string
}

var weed weedServer

func TestMain(m *testing.M) {
	code := m.Run()
	weed.stop()
	os.Exit(code)
}

const weedIdentities = `{"identities":[{"name":"test","credentials":[{"accessKey":"test","secretKey":"secret"}],
"actions":["Admin","Read","Write","List","Tagging"]}]}`

// start installs the server if need be and starts it on free ports.
func (w *weedServer) start() error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	if out, err := exec.Command(filepath.Join(root, "scripts", "python-tools.sh")).CombinedOutput(); err != nil {
		return fmt.Errorf("install the S3 server: %w: %s", err, out)
	}
	if w.dir, err = os.MkdirTemp("", "tranship-s3-"); err != nil {
		return err
	}
	identities := filepath.Join(w.dir, "identities.json")
	if err := os.WriteFile(identities, []byte(weedIdentities), 0o600); err != nil {
		return err
	}
	args := []string{
		"server", "-dir=" + w.dir, "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-s3.config=" + identities,
		"-s3.iam=false", "-master.telemetry=false", "-volume.max=50", "-master.volumeSizeLimitMB=64",
	}
	var s3Port int
	for _, name := range []string{"master", "volume", "filer", "s3"} {
		for _, suffix := range []string{".port", ".port.grpc"} {
			port, err := freePort()
			if err != nil {
				return err
			}
			if name+suffix == "s3.port" {
				s3Port = port
			}
			args = append(args, "-"+name+suffix+"="+strconv.Itoa(port))
		}
	}
	logs, err := os.Create(filepath.Join(w.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = logs.Close() }()
	w.cmd = exec.Command(filepath.Join(root, ".tools", "py", "bin", "weed"), args...)
	w.cmd.Stdout, w.cmd.Stderr = logs, logs
	if err := w.cmd.Start(); err != nil {
		return err
	}
	w.endpoint = fmt.Sprintf("http://127.0.0.1:%d", s3Port)
	client := s3Client(w.endpoint)
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err = client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("ready")})
		if err == nil {
			// The first write also waits for a volume.
			_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("ready"), Key: aws.String("k")})
		}
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			said, _ := os.ReadFile(logs.Name())
			return fmt.Errorf("%w; the server says: %s", err, said[max(0, len(said)-2000):])
		}
	}
}

func (w *weedServer) stop() {
	if w.cmd != nil && w.cmd.Process != nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
	if w.dir != "" {
		_ = os.RemoveAll(w.dir)
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func s3Client(endpoint string) *s3.Client {
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint, UsePathStyle: true, RetryMaxAttempts: 1,
		HTTPClient: &http.Client{Timeout: 30 * time.Second},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "secret"}, nil
		}),
	})
}

// s3Config starts the server once, makes a bucket for the test, and returns
// the sink's configuration with the credentials in the environment's place.
func s3Config(t *testing.T, format string) map[string]any {
	t.Helper()
	weed.once.Do(func() { weed.err = weed.start() })
	require.NoError(t, weed.err)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_ENDPOINT_URL", weed.endpoint)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	bucket := fmt.Sprintf("b%d", time.Now().UnixNano())
	_, err := s3Client(weed.endpoint).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
	require.NoError(t, err)
	return map[string]any{"path": "s3://" + bucket + "/lake/raw", "format": format, "path_style": true}
}
