// Package stacks puts an installation into stacks: NAME-platform, NAME-migrate and
// NAME-app, deployed in this order.
package stacks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tranship-io/tranship/infra/transhipcdk"
)

// Profile is what an installation is sized for.
type Profile string

// Profiles. docs/cost.md has the bill of each.
const (
	// Idle costs next to nothing while nothing runs: the database pauses, and the
	// first request after that waits for it.
	Idle Profile = "idle"
	// Warm answers at once.
	Warm Profile = "warm"
)

// Settings of an installation, as the file that SETTINGS names has them (JSON).
// Each zero value means its default, which is stated here or at the property of the
// same name in transhipcdk.
type Settings struct {
	// Name of the installation. Empty: tranship.
	Name string `json:"name"`
	// Profile. Empty: idle.
	Profile      Profile `json:"profile"`
	Organization string  `json:"organization"`
	// Functions is the folder of the functions' zips. Empty: dist/functions of the
	// checkout.
	Functions string `json:"functions"`
	// ImageDigest is the file that has the digest of the task's image. Empty:
	// dist/image.digest of the checkout.
	ImageDigest  string                   `json:"imageDigest"`
	Architecture transhipcdk.Architecture `json:"architecture"`

	// Database is any PostgreSQL; a platform is then made only if Network or VPC
	// says so. Nil: the platform's Aurora.
	Database *Database `json:"database"`
	// Network of the platform. Empty: public with idle, private with warm.
	Network    transhipcdk.NetworkChoice `json:"network"`
	NatGateway bool                      `json:"natGateway"`
	VPC        *transhipcdk.ExistingVPC  `json:"vpc"`
	// MinACU and MaxACU are the platform's capacity. Null: 0 with idle, 0.5 with
	// warm; 0: 4.
	MinACU        *float64 `json:"minACU"`
	MaxACU        float64  `json:"maxACU"`
	EngineVersion string   `json:"engineVersion"`
	BackupDays    int      `json:"backupDays"`
	// Fargate: false leaves it out. Null: tasks on the platform's cluster, or none
	// without a platform.
	Fargate *bool `json:"fargate"`
	// Tasks says where tasks run instead of on the platform's cluster.
	Tasks *Tasks `json:"tasks"`

	Authorization transhipcdk.Authorization `json:"authorization"`
	OIDC          json.RawMessage           `json:"oidc"`
	Webhooks      json.RawMessage           `json:"webhooks"`
	SMTPURL       string                    `json:"smtpURL"`
	SMTPFrom      string                    `json:"smtpFrom"`
	Buckets       []string                  `json:"buckets"`
	Rate          int                       `json:"rate"`
	Burst         int                       `json:"burst"`
	MaxRunning    int                       `json:"maxRunning"`
	LeaseSeconds  int                       `json:"leaseSeconds"`
	WorkerSeconds int                       `json:"workerSeconds"`
	WorkerMemory  int                       `json:"workerMemory"`
	Concurrency   Concurrency               `json:"concurrency"`
	Unreserved    bool                      `json:"unreserved"`
	LogRetention  int                       `json:"logRetention"`
	LogLevel      string                    `json:"logLevel"`
	NoAPIAccount  bool                      `json:"noAPIAccount"`
	NoAlarms      bool                      `json:"noAlarms"`
	AlarmTopic    string                    `json:"alarmTopic"`
	// Dashboard: null: with warm.
	Dashboard  *bool `json:"dashboard"`
	Disposable bool  `json:"disposable"`
}

// Database is transhipcdk.Database.
type Database struct {
	URL            string `json:"url"`
	SecretARN      string `json:"secretARN"`
	ResourceID     string `json:"resourceID"`
	User           string `json:"user"`
	MaxConnections int    `json:"maxConnections"`
}

// Concurrency is transhipcdk.Concurrency.
type Concurrency struct {
	API      int `json:"api"`
	Compile  int `json:"compile"`
	Sweep    int `json:"sweep"`
	Inspect  int `json:"inspect"`
	Worker   int `json:"worker"`
	Dispatch int `json:"dispatch"`
	Project  int `json:"project"`
	Deliver  int `json:"deliver"`
	Tasks    int `json:"tasks"`
}

// Tasks is transhipcdk.Fargate for a cluster and a task definition that exist.
type Tasks struct {
	Cluster        string   `json:"cluster"`
	TaskDefinition string   `json:"taskDefinition"`
	Subnets        []string `json:"subnets"`
	SecurityGroups []string `json:"securityGroups"`
	PublicIP       bool     `json:"publicIP"`
}

// Load reads settings from a file; an unknown field is an error.
func Load(file string) (*Settings, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	defer f.Close()
	var s Settings
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("read the settings %s: %w", file, err)
	}
	if err := d.Decode(new(json.RawMessage)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the settings %s: something follows the object", file)
	}
	return &s, nil
}

// platformless: nothing of the platform is wanted.
func (s Settings) platformless() bool {
	return s.Database != nil && s.Network == "" && s.VPC == nil && !s.NatGateway
}

// resolve fills in what the checkout at root and the profile say.
func (s Settings) resolve(root string) (Settings, error) {
	if s.Name == "" {
		s.Name = "tranship"
	}
	if s.Functions == "" {
		s.Functions = filepath.Join(root, "dist", "functions")
	}
	if s.ImageDigest == "" {
		s.ImageDigest = filepath.Join(root, "dist", "image.digest")
	}
	idle := s.Profile == Idle || s.Profile == ""
	if !idle && s.Profile != Warm {
		return s, fmt.Errorf("profile %q: use idle or warm", s.Profile)
	}
	platformless := s.platformless()
	if s.Network == "" && !platformless {
		switch {
		case s.VPC != nil:
			s.Network = transhipcdk.Existing
		case idle && !s.NatGateway:
			s.Network = transhipcdk.Public
		default:
			s.Network = transhipcdk.Private
		}
	}
	if s.MinACU == nil {
		least := 0.5
		if idle {
			least = 0
		}
		s.MinACU = &least
	}
	if s.Dashboard == nil {
		shown := !idle
		s.Dashboard = &shown
	}
	if s.Fargate == nil {
		on := !platformless || s.Tasks != nil
		s.Fargate = &on
	}
	if platformless && *s.Fargate && s.Tasks == nil {
		return s, errors.New("fargate without a platform: say in tasks which cluster and task definition to use, or in network where to make them")
	}
	return s, nil
}

// digest reads the digest of the task's image.
func (s Settings) digest() (string, error) {
	text, err := os.ReadFile(s.ImageDigest)
	digest := strings.TrimSpace(string(text))
	if err != nil || !strings.HasPrefix(digest, "sha256:") {
		return "", fmt.Errorf("fargate: there is no digest of the task's image in %s; build it with: make image (or set fargate to false)", s.ImageDigest)
	}
	return digest, nil
}

func (s Settings) base(database transhipcdk.Database, network *transhipcdk.Network) transhipcdk.Base {
	return transhipcdk.Base{
		Name: s.Name, Organization: s.Organization, Functions: s.Functions, Architecture: s.Architecture, Database: database, Network: network,
		LogRetention: s.LogRetention, LogLevel: s.LogLevel, Unreserved: s.Unreserved, Disposable: s.Disposable,
	}
}

func (s Settings) platform() *transhipcdk.PlatformProps {
	return &transhipcdk.PlatformProps{
		Name: s.Name, Network: s.Network, NatGateway: s.NatGateway, VPC: s.VPC, MinACU: *s.MinACU, MaxACU: s.MaxACU,
		EngineVersion: s.EngineVersion, BackupDays: s.BackupDays, NoFargate: !*s.Fargate || s.Tasks != nil, Disposable: s.Disposable,
	}
}

func (s Settings) app(base transhipcdk.Base, migration *transhipcdk.Migration, fargate *transhipcdk.Fargate) *transhipcdk.Props {
	return &transhipcdk.Props{
		Base: base, Migration: migration, Fargate: fargate,
		Authorization: s.Authorization, OIDC: string(s.OIDC), Webhooks: string(s.Webhooks), SMTPURL: s.SMTPURL, SMTPFrom: s.SMTPFrom,
		Buckets: s.Buckets, Rate: s.Rate, Burst: s.Burst, MaxRunning: s.MaxRunning,
		Lease: time.Duration(s.LeaseSeconds) * time.Second, WorkerTimeout: time.Duration(s.WorkerSeconds) * time.Second,
		WorkerMemory: s.WorkerMemory, Concurrency: transhipcdk.Concurrency(s.Concurrency),
		NoAPIAccount: s.NoAPIAccount, NoAlarms: s.NoAlarms, AlarmTopic: s.AlarmTopic, Dashboard: *s.Dashboard,
	}
}
