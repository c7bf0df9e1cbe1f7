package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"adbuffer/internal/operate/admin"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/wire/syntax"
)

// defaultAdmin is the default of admin.listen.
const defaultAdmin = "127.0.0.1:9090"

func newHealth(stdout *os.File) *cobra.Command {
	var (
		file, from string
		timeout    time.Duration
	)
	cmd := &cobra.Command{
		Use:   "health [--admin URL | --config FILE]",
		Short: "Ask a running adbuffer whether it is ready",
		Long: `Requests /readyz from the adbuffer that --admin or $` + adminVariable + ` names, or else from the
adbuffer on this machine, at the configuration's admin.listen (` + defaultAdmin + ` without a
configuration). A URL that has a path is requested unchanged. The exit status is 0 if
adbuffer is ready; otherwise it is 1, and the reason is printed. For health checks of
images without a shell, and for exec probes.

health reads only admin.listen and admin.tls of the configuration, and their variables. So a
file with errors, which a running service ignores, does not make the service look dead.`,
		Example: `  adbuffer health                                           with the file that ADBUFFER_CONFIG names
  adbuffer health --config /etc/adbuffer/adbuffer.yaml
  adbuffer health --admin http://127.0.0.1:9090/healthz     is it alive?
  adbuffer health --admin https://10.0.0.7:9090 --timeout 5s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case timeout <= 0:
				return fmt.Errorf("--timeout is %v, but must be above 0", timeout)
			case file != "" && from != "":
				return errConfigAndAdmin
			}
			if file == "" {
				from = cmp.Or(from, os.Getenv(adminVariable))
			}
			file = cmp.Or(file, os.Getenv(configVariable))
			target, err := healthTarget(from, file)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			text, err := askHealth(ctx, target)
			if _, missing := os.Stat(file); err != nil && from == "" && file != "" && missing != nil {
				return failed(fmt.Errorf("%w; that is the default address: %w", err, missing))
			} else if err != nil {
				return failed(err)
			}
			fmt.Fprintln(stdout, text)
			return nil
		},
	}
	cmd.Flags().StringVar(&from, adminFlag, "", "URL to request, with /readyz if it has no path (default: $"+adminVariable+", or admin.listen)")
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file with admin.listen (default: $"+configVariable+")")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Second, "timeout of the whole command; keep it below the prober's timeout")
	return cmd
}

// health is the URL to request.
type health struct {
	url string
	// here is true for an address of this machine. A certificate is not verified there: only this machine
	// can respond, and certificates rarely name 127.0.0.1.
	here bool
}

// healthTarget returns the URL from or, if from is "", the URL that follows from the configuration in file. If
// file is "" too, it returns the default.
func healthTarget(from, file string) (health, error) {
	if from != "" {
		u, err := url.Parse(from)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return health{}, fmt.Errorf("--%s %q is no http or https URL", adminFlag, from)
		}
		if u.Path == "" {
			u.Path = "/readyz"
		}
		return health{u.String(), syntax.IsLoopbackHost(u.Hostname())}, nil
	}
	its := readAdmin(file)
	host, port, err := net.SplitHostPort(its.Listen)
	if err != nil || port == "0" {
		return health{}, fmt.Errorf("admin.listen %q has no port to request; name the URL with --admin", its.Listen)
	}
	switch ip := net.ParseIP(host); {
	case host == "":
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified() && ip.To4() == nil:
		host = "::1"
	case ip != nil && ip.IsUnspecified():
		host = "127.0.0.1"
	}
	scheme := "http"
	if its.TLS.CertFile != "" {
		scheme = "https"
	}
	return health{scheme + "://" + net.JoinHostPort(host, port) + "/readyz", true}, nil
}

// adminAddress is the part of a configuration that determines the admin listener's URL.
type adminAddress struct {
	Listen string `yaml:"listen"`
	TLS    struct {
		CertFile string `yaml:"cert_file"`
	} `yaml:"tls"`
}

// readAdmin reads the keys of adminAddress from a configuration. A key that is absent or cannot be read has
// its default. config.Load would fail for an error in any other key.
func readAdmin(file string) adminAddress {
	var doc struct {
		Admin adminAddress `yaml:"admin"`
	}
	if text, err := os.ReadFile(file); err == nil {
		yaml.Unmarshal(config.WithVersion11(text), &doc) //nolint:errcheck // absent keys have defaults
	}
	a, env := doc.Admin, config.OSEnv()
	listen, _ := env.Expand(a.Listen) // "" after an error
	cert, _ := env.Expand(a.TLS.CertFile)
	a.Listen = cmp.Or(os.Getenv("ADBUFFER_ADMIN_LISTEN"), listen, defaultAdmin)
	a.TLS.CertFile = cmp.Or(os.Getenv("ADBUFFER_ADMIN_TLS_CERT_FILE"), cert)
	return a
}

// askHealth returns the text of a response with status 200, or else an error.
func askHealth(ctx context.Context, target health) (string, error) {
	u, err := url.Parse(target.url)
	if err != nil {
		return "", err
	}
	listener := url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host}
	client, err := admin.NewClient(admin.ClientOptions{URL: listener.String(), Insecure: target.here})
	if err != nil {
		return "", err
	}
	body, err := client.Get(ctx, u.RequestURI())
	if e, ok := errors.AsType[*admin.StatusError](err); ok {
		return "", fmt.Errorf("not ready: %s responds %d %s: %.1024s", e.URL, e.Status, http.StatusText(e.Status), e.Body)
	} else if err != nil {
		return "", fmt.Errorf("not ready: %w", err)
	}
	return strings.TrimSpace(string(body)), nil
}
