package e2e

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A path that is no key of the configuration would never be found in a test's file.
func TestPatientSettingsAreKeysOfTheConfiguration(t *testing.T) {
	var documented map[string]any
	if err := yaml.Unmarshal([]byte(ReadFile(t, "../../config/adbuffer.yaml")), &documented); err != nil {
		t.Fatal(err)
	}
	documented["ssp_defaults"] = documented["ssps"].([]any)[0] // it has the keys of an SSP
	for _, s := range patient {
		if !has(documented, strings.Split(s.path, ".")) {
			t.Errorf("%s is not in config/adbuffer.yaml", s.path)
		}
	}
}

func TestAFilesOwnSettingsAreNotOverridden(t *testing.T) {
	env := patientFor("server: {drain: {delay: 1s}}\ndeadline: {default: 2s}\n")
	if len(env) != len(Patient())-2 {
		t.Errorf("%d variables of %d", len(env), len(Patient()))
	}
	for _, v := range env {
		if strings.HasPrefix(v, "ADBUFFER_SERVER_DRAIN_DELAY=") || strings.HasPrefix(v, "ADBUFFER_DEADLINE_DEFAULT=") {
			t.Errorf("%s overrides the file", v)
		}
	}
}
