package engine

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"adbuffer/loadtest/internal/rig"
)

// Config is what load tests set in adbuffer's configuration; the rest has its defaults.
// Listeners have free ports, and nothing waits when it ends.
type Config struct {
	SSPs     []*SSP
	Deadline string   // default and, where it is more, max; "" is 10s
	Server   []string // further keys of server, each on a line of its own
	// Routes in YAML's flow style; none makes one route on /fillbuffer whose client may
	// choose among all SSPs.
	Routes []string
	TLS    bool             // towards clients
	Cert   *rig.Certificate // nil with TLS makes one

	// Text is the whole configuration, of a scenario: {{url "name"}} and {{ca "name"}} are the
	// address and the CA file of an SSP.
	Text  string
	Cores string // with Server.Anywhere
}

//go:embed adbuffer.yaml
var configYAML string

// YAML returns the configuration.
func (c Config) YAML() (string, error) {
	text := c.Text
	if text == "" {
		text = configYAML
	}
	t, err := c.parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, c)
	return b.String(), err
}

func (c Config) parse(text string) (*template.Template, error) {
	find := func(get func(*SSP) string) func(string) (string, error) {
		return func(name string) (string, error) {
			if ssp := named(c.SSPs, name); ssp != nil {
				return get(ssp), nil
			}
			return "", fmt.Errorf("adbuffer.config: no SSP %q", name)
		}
	}
	return template.New("adbuffer.config").Option("missingkey=error").
		Funcs(template.FuncMap{"url": find(func(s *SSP) string { return s.URLs[0] }), "ca": find(func(s *SSP) string { return s.CAFile })}).Parse(text)
}
