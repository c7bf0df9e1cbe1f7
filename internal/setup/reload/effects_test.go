//go:build !race

// These tests reload once for each setting, and start nothing beside that. The race detector would make them take six
// times as long.

package reload

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/header"
)

// pathsOf lists the settings of cfg.
func pathsOf(t *testing.T, cfg *config.Config) (paths []string) {
	t.Helper()
	var doc yaml.Node
	testsupport.NoError(t, yaml.Unmarshal(cfg.YAMLWithSecrets(), &doc))
	var visit func(section *yaml.Node, path string)
	visit = func(section *yaml.Node, path string) {
		for i := 0; i < len(section.Content); i += 2 {
			key, value := section.Content[i].Value, section.Content[i+1]
			at := strings.TrimPrefix(path+"."+key, ".")
			switch {
			case value.Kind == yaml.MappingNode:
				visit(value, at)
			case at == "ssps" || at == "routes":
				for _, member := range value.Content {
					visit(member, at+"["+fieldOf(member, "name").Value+"]")
				}
			default:
				paths = append(paths, at)
			}
		}
	}
	visit(doc.Content[0], "")
	return paths
}

func fieldOf(node *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

// anyMember takes the name out of a path: ssps[].host for ssps[openx].host.
func anyMember(path string) string { return regexp.MustCompile(`\[.*\]`).ReplaceAllString(path, "[]") }

// everything is a configuration that uses every file and every section.
func everything(t *testing.T, dir string) (*config.Config, *sspsim.SSP) {
	t.Helper()
	ssp, err := sspsim.Start(sspsim.Options{Protocol: sspsim.TLSAuto})
	testsupport.NoError(t, err)
	t.Cleanup(func() { ssp.Close() })
	pair, err := ssp.CA().ClientCert("adbuffer")
	testsupport.NoError(t, err)
	for _, name := range []string{"", "other-"} {
		file := func(of string) string { return filepath.Join(dir, name+of) }
		testsupport.NoError(t, sspsim.WriteKeyPair(pair, file("cert.pem"), file("key.pem")))
		for of, content := range map[string]string{"ca.pem": string(ssp.CA().PEM()), "token": name + "0123456789abcdef"} {
			testsupport.NoError(t, os.WriteFile(file(of), []byte(content), 0o600))
		}
	}
	files := fmt.Sprintf("cert_file: %[1]s/cert.pem, key_file: %[1]s/key.pem", dir)
	return parse(t, strings.NewReplacer("FILES", files, "DIR", dir, "URL", ssp.URL()).Replace(`
server: {tls: {FILES, client_ca_file: DIR/ca.pem}}
admin: {tls: {FILES}, client_ca_file: DIR/ca.pem, token_file: DIR/token, sample: {requests: 100}}
fleet: {expected_replicas: 3, redis: {address: "127.0.0.1:1", username: u, password_file: DIR/token, tls: {enabled: true, FILES, ca_file: DIR/ca.pem}}}
ssps:
  - {name: a, endpoints: ["URL"], tls: {FILES, ca_file: DIR/ca.pem}, max_in_flight: 50, rewrite_tmax: true}
  - {name: b, endpoints: ["URL"], tls: {insecure_skip_verify: true}}
  - {name: c, endpoints: ["URL"], tls: {insecure_skip_verify: true}}
routes: [{name: r, match: {path: /r}, mode: parallel-all, ssps: [a], mirror: {ssp: b}, on_error: no_ad, cors: {origins: ["https://a.example"]}}]
`)), ssp
}

// changed returns cfg with another valid value at path, which is the only change.
func changed(t *testing.T, cfg *config.Config, dir, path string) *config.Config {
	t.Helper()
	var doc yaml.Node
	testsupport.NoError(t, yaml.Unmarshal(cfg.YAMLWithSecrets(), &doc))
	node := nodeAt(doc.Content[0], path)
	for _, text := range others(node, dir, path) {
		old := *node
		testsupport.MustTrue(t, yaml.Unmarshal([]byte(text), node) == nil, "%q is not YAML", text)
		*node = *node.Content[0]
		b, err := yaml.Marshal(&doc)
		testsupport.NoError(t, err)
		next, _, err := config.Parse(b, nil)
		if err == nil {
			if changes := config.Compare(cfg, next); len(changes) == 1 && changes[0].Path == path {
				return next
			}
		}
		*node = old
	}
	t.Errorf("%s: no other value is valid", path)
	return nil
}

func nodeAt(node *yaml.Node, path string) *yaml.Node {
	for key := range strings.SplitSeq(path, ".") {
		key, name, member := strings.Cut(strings.TrimSuffix(key, "]"), "[")
		node = fieldOf(node, key)
		for i := 0; member && i < len(node.Content); i++ {
			if fieldOf(node.Content[i], "name").Value == name {
				node = node.Content[i]
				break
			}
		}
	}
	return node
}

// another has a valid value for each setting whose values cannot be guessed.
var another = map[string]string{
	"server.tls.min_version": `"1.3"`, "ssps[].tls.min_version": `"1.3"`,
	"server.tls.groups": "[x25519]", "admin.tls.groups": "[x25519]", "ssps[].tls.groups": "[x25519]",
	"server.listen": "127.0.0.1:2", "server.socket_mode": `"0600"`, "server.trusted_proxies": `["192.0.2.0/24"]`, "server.fairness.key": "client_ip", "server.health_path": "/other",
	"admin.listen": "127.0.0.1:2", "log.level": "debug", "log.format": "console", "tracing.endpoint": "http://127.0.0.1:4318/v1/traces",
	"fleet.redis.address": "127.0.0.1:2", "ssps[].endpoints": `["https://127.0.0.1:2/bid"]`, "ssps[].health_check.path": "/health", "ssps[].protocol": "http1",
	"ssps[].pool.pipeline_methods": "all", "ssps[].headers.pass": "[X-Other]", "ssps[].headers.remove": "[X-Other]", "ssps[].remove": "[{path: x}]", "ssps[].set": "[{path: x, value: {y: 1}}]", "ssps[].when": "[{tcf: {vendor: 76, purposes: [1], allowed: false}}]",
	"ssps[].headers.set": "[{name: X-Other, value: x}]", "ssps[].identity": "both", "ssps[].compress.coding": "zstd", "ssps[].no_bid_body": "vast", "ssps[].qps.scope": "fleet", "ssps[].qps.shape.max_loss": "0.1", "ssps[].qps.shape.keys": "[\"query:slot\"]",
	"ssps[].retry.stale": "all", "ssps[].source_addresses": "[127.0.0.2]", "routes[].mirror.ssp": `""`, "routes[].match.path": "/other", "routes[].match.query": "[{name: q, value: x}]",
	"routes[].match.header": "[{name: X-Other}]", "routes[].match.openrtb": "[{path: x, in: [1]}]", "routes[].mode": "single", "routes[].ssps": "[{name: c}]",
	"routes[].on_error": "status", "routes[].on_error_status": `["503"]`, "routes[].no_ad": "vast", "routes[].privacy": "truncate_ip", "routes[].merge": "openrtb", "routes[].priority": "critical",
	"routes[].cors.origins": `["https://b.example"]`,
}

// others returns values that may be valid in place of the node's.
func others(node *yaml.Node, dir, path string) (texts []string) {
	v := node.Value
	if text, ok := another[anyMember(path)]; ok {
		return []string{text}
	}
	switch d, err := time.ParseDuration(v); {
	case v == "true" || v == "false":
		return []string{strconv.FormatBool(v == "false")}
	case strings.HasPrefix(v, dir):
		return []string{filepath.Join(dir, "other-"+filepath.Base(v))}
	case err == nil && v != "0":
		return []string{(d + time.Millisecond).String(), (d / 2).String()}
	}
	if f, err := strconv.ParseFloat(v, 64); err == nil {
		for _, other := range []float64{f + 1, f / 2, f * 0.9} {
			texts = append(texts, strconv.FormatFloat(other, 'f', -1, 64))
		}
		return texts
	}
	return []string{"other"}
}

// A reload follows the tags, setting by setting.
func TestAReloadHasTheEffectsOfTheTags(t *testing.T) {
	testsupport.Long(t)
	dir := t.TempDir()
	base, _ := everything(t, dir)
	v := versionsOf(t, base)
	for _, path := range pathsOf(t, base) {
		if strings.HasSuffix(path, "].name") || strings.HasPrefix(path, "ssps[b]") || strings.HasPrefix(path, "ssps[c]") {
			continue // the path itself would change, or it was seen at ssps[a]
		}
		next := changed(t, base, dir, path)
		if next == nil {
			continue
		}
		effect := config.Compare(base, next)[0].Effect
		testsupport.True(t, effect != config.NewPool || !reflect.DeepEqual(dialOptions(&base.SSPs[0]), dialOptions(&next.SSPs[0])), "%s: %s, but dials have the same settings", path, effect)
		testsupport.True(t, !strings.HasPrefix(path, "routes[r].") || tableOf(t, base) != tableOf(t, next), "%s: requests see no other route", path)
		was := *v.Current().Part("a")
		conns, options := *was.dialer.conns.Load(), was.SSP.Pool().Options()
		_, err := v.Replace(next)
		var faults config.Errors
		refused := errors.As(err, &faults) && len(faults) == 1 && faults[0].Path == path
		testsupport.True(t, refused == (effect == config.Restart), "%s: %s, and the reload says %v", path, effect, err)
		if err != nil {
			continue
		}
		is := v.Current().Part("a")
		replaced := is.SSP.Pool() != was.SSP.Pool()
		testsupport.True(t, replaced == (effect == config.NewPool), "%s: %s, but a new pool: %v", path, effect, replaced)
		if effect != config.NewPool {
			renewed := is.SSP.Pool().Options().ConnVersion != options.ConnVersion
			testsupport.True(t, renewed == (effect == config.NewConnections), "%s: %s, but new connections: %v", path, effect, renewed)
			kept := !reflect.DeepEqual(conns, *is.dialer.conns.Load())
			testsupport.True(t, kept == (effect == config.NewConnections), "%s: %s, but connections keep the setting: %v", path, effect, kept)
		}
		// qps.scope has no effect while qps.limit is 0.
		if effect == config.InPlace && path != "ssps[a].qps.scope" && strings.HasPrefix(path, "ssps[a].") && settingsOf(t, v, was.Config) == settingsOf(t, v, is.Config) {
			t.Errorf("%s: %s, but neither the SSP nor its pool has another setting", path, effect)
		}
		if _, err := v.Replace(base); err != nil {
			t.Fatal(err)
		}
	}
}

// tableOf is the table of the routes, in a form to compare.
func tableOf(t *testing.T, cfg *config.Config) (text string) {
	t.Helper()
	ssps := map[string]*ssp.SSP{}
	names := map[*ssp.SSP]string{}
	for _, c := range cfg.SSPs {
		s := ssp.New(ssp.Options{Name: c.Name, Policy: header.NewPolicy(header.PolicyOptions{})}, nil)
		ssps[c.Name], names[s] = s, c.Name
	}
	for _, r := range newTable(cfg, ssps, nil).Routes {
		for _, leg := range r.Targets {
			text += fmt.Sprintf("%s %d %v %v, ", names[leg.SSP], leg.Weight, leg.Timeout, leg.Secondary)
			text += fmt.Sprintf("%v, ", leg.When)
		}
		text += fmt.Sprintf("masked %v, ", r.Masked)
		if m := r.Mirror; m != nil {
			text += fmt.Sprintf("mirror %s %v, ", names[m.SSP], m.Share)
		}
		o := *r
		o.Targets, o.Mirror = nil, nil
		b, err := json.Marshal(&o)
		testsupport.NoError(t, err)
		text += string(b) + "\n"
	}
	return text
}

func TestTheKeysOfARoutesSSPsReachTheTable(t *testing.T) {
	table := func(route string) string {
		return tableOf(t, parse(t, `
ssps: [{name: a, endpoints: ["http://127.0.0.1:1/"]}, {name: b, endpoints: ["http://127.0.0.1:2/"]}]
routes: [{name: r, match: {path: /*}, `+route+"}]\n"))
	}
	for _, c := range [][2]string{
		{"mode: split, ssps: [a, b]", "mode: split, ssps: [a, {name: b, weight: 2}]"},
		{"mode: waterfall, ssps: [a, b]", "mode: waterfall, ssps: [{name: a, timeout: 1s}, b]"},
		{"mode: parallel-all, ssps: [a, b]", "mode: parallel-all, ssps: [a, {name: b, secondary: true}]"},
		{"ssps: [a, b]", "ssps: [{name: a, when: [{path: x, exists: true}]}, b]"},
		{"ssps: [{name: a, when: [{path: x, exists: true}]}, b]", "ssps: [{name: a, when: [{path: x, exists: false}]}, b]"},
		{"ssps: [{name: a, when: [{tcf: {vendor: 1}}]}, b]", "ssps: [a, b]"},
		{"ssps: [{name: a, when: [{path: x, in: [1]}]}, b]", "ssps: [{name: a, when: [{path: x, not_in: [1]}]}, b]"},
	} {
		testsupport.True(t, table(c[0]) != table(c[1]), "%s has no effect", c[1])
	}
}

// A pool outlives a change of its endpoints. Host names the first endpoint of the current configuration.
func TestHostFollowsEndpointsThatChangeInPlace(t *testing.T) {
	v := versionsOf(t, parse(t, to(`http://127.0.0.1:1/bid", "http://127.0.0.1:2/bid`)))
	pool := v.Current().Part("openx").SSP.Pool()
	_, err := v.Replace(parse(t, to("http://127.0.0.1:2/bid")))
	testsupport.NoError(t, err)
	is := v.Current().Part("openx")
	testsupport.True(t, is.Host() == "127.0.0.1:2" && is.SSP.Pool() == pool, "host %s, and a new pool: %v; want 127.0.0.1:2 in the same pool", is.Host(), is.SSP.Pool() != pool)
}

// settingsOf are the settings of an SSP and its pool, in a form to compare.
func settingsOf(t *testing.T, v *Versions, c *config.SSP) string {
	t.Helper()
	s := preparedSSP{cfg: c}
	o := s.sspOptions(v.Current().common, nil)
	policy := *o.Policy
	o.Policy = nil
	return fmt.Sprintf("%+v %+v %+v", o, policy, s.poolOptions(v.Current().common))
}
