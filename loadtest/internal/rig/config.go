package rig

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

// Config holds the settings that load tests change in adbuffer's configuration. Listeners have free
// ports, and a drain does not wait.
type Config struct {
	SSPs     []*SSP
	Deadline string   // default deadline; "" is 10s
	Server   []string // more keys of server, one in each line
	Admin    string   // more keys of admin in the flow style of YAML
	// Routes are in the flow style of YAML. If there are no routes, the configuration has one on /fillbuffer, on
	// which the client chooses among all SSPs.
	Routes   []string
	Cert     *Certificate // for TLS towards clients; nil is cleartext
	ClientCA string       // file of the authorities of clients' certificates, which needs Cert; "" requests no certificates

	// Text is the whole configuration of a scenario. {{url "name"}} and {{ca "name"}} insert the
	// address and the CA file of an SSP.
	Text string
}

//go:embed adbuffer.yaml
var configYAML string

// YAML returns the configuration.
func (c Config) YAML() (string, error) {
	text := c.Text
	if text == "" {
		text = configYAML
	}
	t, err := c.Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, c)
	return b.String(), err
}

// Parse parses the text of a configuration, whose functions know the SSPs of c.
func (c Config) Parse(text string) (*template.Template, error) {
	find := func(get func(*SSP) string) func(string) (string, error) {
		return func(name string) (string, error) {
			for _, ssp := range c.SSPs {
				if ssp.Name == name {
					return get(ssp), nil
				}
			}
			return "", fmt.Errorf("adbuffer.config: no SSP %q", name)
		}
	}
	return template.New("adbuffer.config").Option("missingkey=error").
		Funcs(template.FuncMap{"url": find(func(s *SSP) string { return s.URLs[0] }),
			"ca": find(func(s *SSP) string { return s.CAFile })}).Parse(text)
}
