package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"adbuffer/internal/request/route"
	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/header"
)

// A word that no constant names would silently mean what the code does by default.
func TestConstantsNameTheWordsOfTheConfiguration(t *testing.T) {
	for _, c := range []struct {
		section any
		field   string
		want    []any // the constants; a word without a constant stands as text
	}{
		{Route{}, "Mode", []any{route.Single, route.Split, route.Waterfall, route.ParallelFirst, route.ParallelAll}},
		{Route{}, "NoAd", []any{"empty", route.NoAdVAST, route.NoAdOpenRTB}},
		{Route{}, "OnError", []any{"status", OnErrorNoAd}},
		{Route{}, "Priority", []any{PriorityCritical, PriorityNormal, PrioritySheddable}},
		{Route{}, "Privacy", []any{"none", PrivacyTruncateIP}},
		{Settings{}, "Identity", []any{header.XForwardedFor, header.XDevice, header.Both, header.None}},
		{Settings{}, "NoBidBody", []any{"none", ssp.NoBidVAST, ssp.NoBidOpenRTB}},
		{ssp.CompressOptions{}, "Coding", []any{ssp.CodingNone, ssp.CodingGzip, ssp.CodingZstd}},
		{Settings{}, "Protocol", []any{dial.Auto, dial.HTTP1, dial.HTTP1Pipelined, dial.HTTP2, dial.H2C}},
		{Pool{}, "PipelineMethods", []any{"idempotent", PipelineAll}},
		{Retry{}, "Stale", []any{ssp.StaleIdempotent, ssp.StaleAll, ssp.StaleNever}},
		{QPS{}, "Scope", []any{ScopeInstance, ScopeFleet}},
		{Log{}, "Format", []any{"json", FormatConsole}},
	} {
		field, found := reflect.TypeOf(c.section).FieldByName(c.field)
		testsupport.True(t, found, "%T has no field %s", c.section, c.field)
		testsupport.Equal(t, field.Tag.Get("words"), strings.TrimSpace(fmt.Sprintln(c.want...)), "the words %q of %s", c.field)
	}
}
