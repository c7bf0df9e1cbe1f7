package e2e

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// patient are the settings of a process on a slow machine, by their paths: timeouts are long, and too
// little CPU refuses nothing.
var patient = map[string]string{
	"server.listen":                       "127.0.0.1:0",
	"server.drain.delay":                  "0s",
	"server.overload.enabled":             "false",
	"server.read_timeout":                 "20s",
	"server.write_timeout":                "20s",
	"admin.listen":                        "127.0.0.1:0",
	"deadline.default":                    "20s",
	"deadline.max":                        "30s",
	"ssp_defaults.timeouts.connect":       "10s",
	"ssp_defaults.timeouts.tls_handshake": "10s",
	"ssp_defaults.pool.pending_timeout":   "10s",
}

// Patient is the environment of a process on a slow machine: timeouts are long. Its variables take
// precedence over the configuration file.
func Patient() []string { return patientFor("") }

// patientFor is Patient without the settings that the configuration has itself.
func patientFor(config string) []string {
	var tree any
	yaml.Unmarshal([]byte(config), &tree)
	env := []string{"GORACE=exitcode=66"}
	for path, value := range patient {
		if !has(tree, path) {
			env = append(env, "ADBUFFER_"+strings.ToUpper(strings.ReplaceAll(path, ".", "_"))+"="+value)
		}
	}
	return slices.Clip(env) // so that two tests can append to it
}

func has(tree any, path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		section, _ := tree.(map[string]any)
		tree = section[name]
	}
	return tree != nil
}
