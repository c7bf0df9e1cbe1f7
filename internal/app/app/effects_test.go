package app

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/zap"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// readWhenUsed are in-place settings that are read from the current configuration at the moment of
// use. No part receives them.
var readWhenUsed = map[string]bool{"server.drain.delay": true, "server.drain.timeout": true}

// An in-place setting must reach the proxy, or be listed in readWhenUsed.
func TestInPlaceSettingsOfTheServerReachTheProxy(t *testing.T) {
	ssp := sim(t, sspsim.Options{})
	s := setup{ssps: []string{at("a", ssp)}, routes: []string{to("x", "a")}}
	base := s.load(t)
	base.Machine = config.Machine{} // no limit of the machine hides a change
	a, err := New(base, zap.NewNop(), Process{})
	testsupport.NoError(t, err)
	defer a.Close()
	seen := 0
	next := s.load(t)
	next.Machine = base.Machine
	for _, section := range []any{&next.Server, &next.Deadline, &next.Log.Access} {
		eachField(reflect.ValueOf(section).Elem(), func(field reflect.Value) {
			old := reflect.ValueOf(field.Interface())
			change(field)
			changes := config.Compare(base, next)
			testsupport.MustTrue(t, len(changes) == 1, "one field changed, and the changes are %v", changes)
			path := changes[0].Path
			reached := !reflect.DeepEqual(a.proxyOptions(&reload.Version{Config: base}), a.proxyOptions(&reload.Version{Config: next})) ||
				path == "server.via" || path == "server.request_id.to_ssp" || // SSPs use them too
				strings.HasPrefix(path, "server.overload.") || // the gate has them: see TestAnAdbufferWithoutCPURefusesAndSaysSo
				path == "server.background_cpu" || // apply gives it to the share
				path == "server.fairness.key" || // the other value is not valid: see TestFairnessMakesRoomForAnotherKey
				path == "server.tls.min_version" || path == "server.tls.groups" // package listen applies them: see TestTheTLSPolicyOfAReloadHoldsForNewHandshakes
			testsupport.True(t, changes[0].Effect != config.InPlace || reached != readWhenUsed[path], "%s: reaches the proxy: %v; read when used: %v", path, reached, readWhenUsed[path])
			field.Set(old)
			seen++
		})
	}
	testsupport.AtLeast(t, seen, 25, "only %d settings were changed")
}

// eachField calls f with every setting of a section.
func eachField(section reflect.Value, f func(reflect.Value)) {
	for i := range section.NumField() {
		if field := section.Field(i); field.Kind() == reflect.Struct {
			eachField(field, f)
		} else if section.Type().Field(i).Tag.Get("yaml") != "-" {
			f(field)
		}
	}
}

func change(field reflect.Value) {
	switch v := field.Interface().(type) {
	case bool:
		field.SetBool(!v)
	case string:
		field.SetString("/other")
	case config.Address:
		field.SetString("127.0.0.1:1")
	case config.TLSVersion:
		field.SetString(string("1.3"))
	case []config.TLSGroup:
		field.Set(reflect.ValueOf(v[:len(v)-1]))
	case []netip.Prefix:
		field.Set(reflect.ValueOf(v[:len(v)-1]))
	case float64:
		field.SetFloat(v / 2)
	default:
		if strings.HasPrefix(field.Kind().String(), "uint") {
			field.SetUint(field.Uint() + 1)
		} else {
			field.SetInt(field.Int() + 1_000_000)
		}
	}
}
