package composetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v4"
)

// parse reads a compose file as docker does. It refuses keys that the specification does not have.
func parse(t *testing.T, text []byte) (*types.Project, error) {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml"), Content: text}},
	})
}

func composeFile(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := parse(t, composeFile(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// adbuffers are the services that run `adbuffer serve`.
func adbuffers(t *testing.T, p *types.Project) (list []types.ServiceConfig) {
	t.Helper()
	for _, name := range []string{"adbuffer-1", "adbuffer-2"} {
		s, err := p.GetService(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

var built struct {
	sync.Once
	file string
	err  error
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "adbuffer-compose-")
	if err != nil {
		panic(err)
	}
	built.file = filepath.Join(dir, "adbuffer")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// binary returns the path of the image's binary. The first call builds it.
func binary(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		cmd := exec.Command("go", "build", "-o", built.file, "./cmd/adbuffer")
		cmd.Dir = "../../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		var out []byte
		out, built.err = cmd.CombinedOutput()
		if built.err != nil {
			t.Logf("%s", out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.file
}

func TestEveryServiceIsConfinedWatchedAndBounded(t *testing.T) {
	p := project(t)
	if len(p.Services) != 5 {
		t.Errorf("%d services: %v", len(p.Services), p.ServiceNames())
	}
	for name, s := range p.Services {
		for claim, ok := range map[string]bool{
			"its root file system is read-only": s.ReadOnly,
			"it has no capability":              slices.Equal(s.CapDrop, []string{"ALL"}) && len(s.CapAdd) == 0 && !s.Privileged,
			"it can gain no privilege":          slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}),
			"its user is a number, not root's":  s.User != "" && s.User[0] >= '1' && s.User[0] <= '9',
			"its health is checked":             s.HealthCheck != nil && len(s.HealthCheck.Test) > 1 && s.HealthCheck.Retries != nil && *s.HealthCheck.Retries > 1,
			"its memory is bounded":             s.MemLimit > 0,
			"its CPU is bounded":                s.CPUS > 0,
			"its processes are bounded":         s.PidsLimit > 0,
			"its logs are bounded":              s.Logging != nil && s.Logging.Options["max-size"] != "" && s.Logging.Options["max-file"] != "",
			"it comes back":                     s.Restart == "unless-stopped",
			"it has a time to stop":             s.StopGracePeriod != nil,
			"its image has a tag":               strings.Contains(s.Image, ":") && !strings.HasSuffix(s.Image, ":latest"),
			"it shares no namespace":            s.NetworkMode == "" && s.Pid == "" && s.Ipc == "",
		} {
			if !ok {
				t.Errorf("%s: not so: %s", name, claim)
			}
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is published to every network", name, port.Published)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
			if !v.ReadOnly {
				t.Errorf("%s can write to %s", name, v.Source)
			}
		}
		if s.Build == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(s.Build.Context, "Dockerfile")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAdbuffersConfigurationFitsItsContainer(t *testing.T) {
	for _, s := range adbuffers(t, project(t)) {
		nofile := s.Ulimits["nofile"]
		if nofile == nil {
			t.Fatalf("%s has no limit of open files of its own", s.Name)
		}
		// Under the container's limit, check warns if it is too low.
		cmd := exec.Command("prlimit", "--nofile="+strconv.Itoa(nofile.Soft)+":"+strconv.Itoa(nofile.Hard), "--",
			binary(t), "check", "--effective", "--config", "../adbuffer/adbuffer.yaml")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("adbuffer check: %v\n%s", err, out)
		}
		if bytes.Contains(out, []byte("# warning: server.")) || bytes.Contains(out, []byte("# warning: ssps")) {
			t.Errorf("%s: %s", s.Name, out)
		}
		var cfg struct {
			Server struct {
				MaxBufferedBytes int64 `yaml:"max_buffered_bytes"`
				Drain            struct{ Delay, Timeout string }
			}
		}
		if err := yaml.Unmarshal(out, &cfg); err != nil {
			t.Fatal(err)
		}
		delay, err1 := time.ParseDuration(cfg.Server.Drain.Delay)
		timeout, err2 := time.ParseDuration(cfg.Server.Drain.Timeout)
		if err1 != nil || err2 != nil || time.Duration(*s.StopGracePeriod) < delay+timeout+time.Second {
			t.Errorf("%s is killed after %v; its drain takes %v and %v", s.Name, s.StopGracePeriod, cfg.Server.Drain.Delay, cfg.Server.Drain.Timeout)
		}
		if cfg.Server.MaxBufferedBytes > int64(s.MemLimit)/3 {
			t.Errorf("%s: server.max_buffered_bytes %d is more than a third of its memory", s.Name, cfg.Server.MaxBufferedBytes)
		}
		if s.HealthCheck == nil || !slices.Equal(s.HealthCheck.Test, []string{"CMD", "/adbuffer", "health"}) {
			t.Errorf("%s: health check %v", s.Name, s.HealthCheck)
		}
	}
}

// Grafana finds its data source and its dashboard.
func TestGrafanaIsProvisionedWithPrometheusAndTheDashboard(t *testing.T) {
	grafana, err := project(t).GetService("grafana")
	if err != nil {
		t.Fatal(err)
	}
	home := grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if home == nil || !slices.ContainsFunc(grafana.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == filepath.Dir(*home) }) {
		t.Fatalf("the home dashboard is not mounted: %v", home)
	}
	for file, setting := range map[string]string{"datasources/prometheus.yaml": "url: http://prometheus:9090", "dashboards/adbuffer.yaml": "path: " + filepath.Dir(*home)} {
		text, err := os.ReadFile("../grafana/" + file)
		if err != nil || !bytes.Contains(text, []byte(setting)) {
			t.Errorf("%s has no %q: %v", file, setting, err)
		}
	}
}
