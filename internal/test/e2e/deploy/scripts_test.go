package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// The scripts of testdata/scripts run the binary. Their command exits runs a program that must end
// with this exit status.
func TestCommands(t *testing.T) {
	t.Parallel()
	config, err := filepath.Abs("../../../../config")
	testsupport.NoError(t, err)
	binary := e2e.Binary(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/scripts",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("CONFIG", config)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": func(ts *testscript.TestScript, _ bool, args []string) {
			want, err := strconv.Atoi(args[0])
			ts.Check(err)
			err = ts.Exec(args[1], args[2:]...)
			status := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				status = exit.ExitCode()
			} else {
				ts.Check(err)
			}
			if status != want {
				ts.Fatalf("exit status %d, want %d", status, want)
			}
		}},
	})
}
