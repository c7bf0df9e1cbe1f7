package chaos

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/test/sspsim"
)

// namedBehaviour is a behaviour of an SSP with its name in the report.
type namedBehaviour struct {
	name      string
	behaviour sspsim.Behaviour
	// only names the protocol that the SSP must speak; "" means any protocol.
	only string
}

// healthy is the behaviour on which all other behaviours are based. Most responses are small, some are large, and
// each response names its request.
var healthy = sspsim.Behaviour{Latency: sspsim.Lognormal(8*time.Millisecond, 60*time.Millisecond),
	Response: sspsim.Response{Echo: true, NoBid: sspsim.Share(0.3), Size: sspsim.Size{P50: 1500, P95: 60_000, Max: 900_000}}}

//go:embed behaviours.yaml
var behavioursYAML []byte

// allBehaviours returns the behaviours of behaviours.yaml.
var allBehaviours = sync.OnceValue(func() (out []namedBehaviour) {
	var entries []struct {
		Name, Only string
		Behaviour  any
	}
	err := yaml.Unmarshal(behavioursYAML, &entries)
	for _, e := range entries {
		m := namedBehaviour{name: e.Name, behaviour: healthy, only: e.Only}
		changes, failed := json.Marshal(e.Behaviour)
		err = errors.Join(err, failed, m.behaviour.UnmarshalJSON(changes))
		out = append(out, m)
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: behaviours.yaml: %v", err))
	}
	return out
})

func behavioursFor(k sspKind) []namedBehaviour {
	if k.healthy {
		return []namedBehaviour{{name: "healthy", behaviour: k.calm()}}
	}
	http1 := k.speaks == sspsim.HTTP1 || k.speaks == sspsim.TLSHTTP1
	fits := map[string]bool{"": true, "HTTP/1": http1, "HTTP/1, one request at a time": k.protocol == "http1", "HTTP/2": !http1,
		"HTTP/2 and never HTTP/1": !http1 && k.speaks != sspsim.TLSAuto, "the protocol that TLS negotiates": k.speaks == sspsim.TLSAuto}
	return slices.DeleteFunc(slices.Clone(allBehaviours()), func(m namedBehaviour) bool { return !fits[m.only] })
}
