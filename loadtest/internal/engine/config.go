package engine

import (
	"fmt"
	"strings"
)

// Config is what load tests set in adbuffer's configuration; the rest has its
// defaults.
type Config struct {
	SSPs     []SSPConfig
	Deadline string // default and, if it is more, max; "" is 10s
	// Server is further keys of server, each on a line of its own.
	Server []string
	// Routes in YAML's flow style; none makes one route on /fillbuffer whose
	// client may choose among all SSPs.
	Routes []string
}

// SSPConfig is one SSP of a Config.
type SSPConfig struct {
	Name     string
	URL      string
	Protocol string // "" is auto
	CAFile   string
	// OtherURLs are further endpoints.
	OtherURLs []string
	Pool      string   // keys of pool, in YAML's flow style without braces
	More      []string // further keys, each on a line of its own
}

// YAML returns the configuration. Listeners have free ports, and nothing waits
// when it ends.
func (c Config) YAML() string {
	deadline := c.Deadline
	if deadline == "" {
		deadline = "10s"
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "server:\n  listen: \"127.0.0.1:0\"\n  drain: {delay: 0s, timeout: 1s}\n")
	for _, line := range c.Server {
		fmt.Fprintf(b, "  %s\n", line)
	}
	fmt.Fprintf(b, "admin: {listen: \"127.0.0.1:0\", warmup_timeout: 30s}\ndeadline: {default: %s, max: 1m}\nssps:\n", deadline)
	var names []string
	for _, s := range c.SSPs {
		names = append(names, s.Name)
		fmt.Fprintf(b, "  - name: %s\n    endpoints: [%q", s.Name, s.URL)
		for _, u := range s.OtherURLs {
			fmt.Fprintf(b, ", %q", u)
		}
		b.WriteString("]\n")
		if s.Protocol != "" {
			fmt.Fprintf(b, "    protocol: %s\n", s.Protocol)
		}
		if s.CAFile != "" {
			fmt.Fprintf(b, "    tls: {ca_file: %q}\n", s.CAFile)
		}
		if s.Pool != "" {
			fmt.Fprintf(b, "    pool: {%s}\n", s.Pool)
		}
		for _, line := range s.More {
			fmt.Fprintf(b, "    %s\n", line)
		}
	}
	b.WriteString("routes:\n")
	for _, r := range c.Routes {
		fmt.Fprintf(b, "  - %s\n", r)
	}
	if len(c.Routes) == 0 {
		fmt.Fprintf(b, "  - {name: default, match: {path: /fillbuffer}, client_choice: true, ssps: [%s]}\n", strings.Join(names, ", "))
	}
	return b.String()
}
