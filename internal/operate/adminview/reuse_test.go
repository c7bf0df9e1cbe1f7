package adminview

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/test/testsupport"
)

// Looks are two seconds apart. The client without reuse comes with look 10 and leaves after look 49.
func TestAClientWithoutReuseIsNamedWithinTenSeconds(t *testing.T) {
	for name, test := range map[string]struct {
		single, others uint64 // requests between two looks, each kind for a route
		preflights     uint64 // how many of the others are preflights
		gone           int    // the first look without the route of the others; 0 = none
		begins, ends   int    // the first and the last look with a notice; 0 = none
		lines          int
	}{
		"all requests":             {single: 200, begins: 10, ends: 53, lines: 2},
		"10.5 a second in all":     {single: 21, begins: 14, ends: 49, lines: 2},
		"ten a second":             {single: 20},
		"a tenth of the requests":  {single: 100, others: 900, begins: 14, ends: 49, lines: 2},
		"less than a tenth":        {single: 100, others: 1000},
		"all clients reuse theirs": {others: 1000},
		"preflights are requests":  {single: 100, others: 1000, preflights: 900},
		"their route disappears":   {single: 30, others: 1000, gone: 30, begins: 30, ends: 50, lines: 1},
	} {
		t.Run(name, func(t *testing.T) {
			core, lines := observer.New(zap.InfoLevel)
			var r reuse
			var single, others, preflights uint64
			now, begins, ends := time.Now(), 0, 0
			for i := range 80 {
				others, preflights = others+test.others-test.preflights, preflights+test.preflights
				if i >= 10 && i < 50 {
					single += test.single
				}
				routes := []proxy.RouteCounts{{Outcomes: map[string]uint64{"fill": single}}, {Outcomes: map[string]uint64{"fill": others}, Preflights: preflights}}
				if test.gone > 0 && i >= test.gone {
					routes = routes[:1]
				}
				now = now.Add(historyStep)
				r.look(zap.New(core), now, single, "10.0.0.7", routes)
				if text := r.notice(); text != "" {
					testsupport.True(t, strings.Contains(text, "The last client was 10.0.0.7."), "the notice is %s", text)
					if begins == 0 {
						begins = i
					}
					ends = i
				}
			}
			testsupport.True(t, begins == test.begins && ends == test.ends, "notices from look %d to %d, want %d to %d", begins, ends, test.begins, test.ends)
			testsupport.Equal(t, lines.Len(), test.lines, "%d lines are logged")
		})
	}
}
