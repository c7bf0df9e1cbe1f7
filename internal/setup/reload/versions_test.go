package reload

import (
	"fmt"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/testsupport"
)

func TestAReloadLogsAHundredErrorsAndCountsTheOthers(t *testing.T) {
	for _, test := range []struct {
		faults, lines int
		others        int64 // 0 = none
	}{{100, 100, 0}, {1003, 101, 903}} {
		core, lines := observer.New(zap.ErrorLevel)
		v := &Versions{opts: Options{Log: zap.New(core)}}
		var faults config.Errors
		for i := range test.faults {
			faults = append(faults, config.Error{Path: fmt.Sprintf("ssps[%d]", i), Rule: "would lose more requests than admin.sample.max_change allows"})
		}
		v.Failed(faults)
		testsupport.MustTrue(t, lines.Len() == test.lines, "%d errors make %d lines, want %d", test.faults, lines.Len(), test.lines)
		last := lines.All()[test.lines-1].ContextMap()
		others, _ := last["errors"].(int64)
		testsupport.True(t, others == test.others && (last["fault"] == nil) == (test.others > 0), "of %d errors, the last line is %v", test.faults, last)
		testsupport.True(t, len(v.LastFailed().Err.(config.Errors)) == test.faults, "the page does not have all errors")
	}
}
