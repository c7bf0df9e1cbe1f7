package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// patience bounds every wait; it passes only when something is broken.
const patience = testsupport.Patience

// inImage returns a command in a new container. The root file system, the user and the variables
// are the image's; env adds variables.
func inImage(t *testing.T, args []string, env ...string) *exec.Cmd {
	t.Helper()
	c := built(t).config
	root := rootFileSystem(t, image)
	return inRoot(t, root, c, args, env...)
}

func inRoot(t *testing.T, root string, c imageConfig, args []string, env ...string) *exec.Cmd {
	t.Helper()
	user, group, _ := strings.Cut(c.User, ":")
	uid, err1 := strconv.ParseUint(user, 10, 32)
	gid, err2 := strconv.ParseUint(group, 10, 32)
	testsupport.NoError(t, errors.Join(err1, err2))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append(slices.Clone(c.Env), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     root,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
	}
	return cmd
}

func TestTheImageServesRespondsToItsHealthCheckAndStops(t *testing.T) {
	testsupport.Needs(t, "buildah", "buildah")
	ssp, err := sspsim.Start(sspsim.Options{})
	testsupport.NoError(t, err)
	defer ssp.Close()
	c := built(t).config
	root := rootFileSystem(t, image)
	traffic, admin := testsupport.FreeAddr(t), testsupport.FreeAddr(t)
	// This has the effect of `-v ./config:/etc/adbuffer:ro`.
	testsupport.NoError(t, os.Mkdir(root+"/etc/adbuffer", 0o755))
	testsupport.NoError(t, os.WriteFile(root+"/etc/adbuffer/adbuffer.yaml", fmt.Appendf(nil, `
server: {listen: %q, drain: {delay: 0s}}
admin: {listen: %q}
deadline: {default: 20s, max: 30s}
ssps: [{name: sim, endpoints: [%q]}]
routes: [{name: default, match: {path: /fillbuffer}, ssps: [sim]}]
`, traffic, admin, ssp.URL()), 0o644))
	healthy := func() error {
		out, err := inRoot(t, root, c, c.Healthcheck.Test[1:]).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if err := healthy(); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("the health check before the start: %v", err)
	}

	serve := testsupport.Launch(t, inRoot(t, root, c, append(slices.Clone(c.Entrypoint), c.Cmd...)), func(*testsupport.Daemon) bool { return healthy() == nil })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Get("http://" + traffic + "/fillbuffer?pub=1")
	testsupport.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK || res.Header.Get("X-Adbuffer-Source") != "ssp/sim" || !bytes.Contains(body, []byte("seatbid")) {
		t.Errorf("%s, %v: %s", res.Status, err, body)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", serve.Cmd.Process.Pid))
	testsupport.True(t, err == nil && bytes.Contains(status, []byte("CapEff:\t0000000000000000")), "it has capabilities (%v):\n%s", err, status)
	serve.Signal(syscall.SIGTERM)
	<-serve.Ended() // by its context at the latest
	testsupport.Equal(t, serve.Cmd.ProcessState.ExitCode(), 0, "exit status %d after SIGTERM")
	testsupport.True(t, healthy() != nil, "healthy after its end")
}

func TestTheImageSaysWhichVersionItIs(t *testing.T) {
	testsupport.Needs(t, "buildah", "buildah")
	out, err := inImage(t, []string{"/adbuffer", "version", "--json"}).Output()
	var v map[string]string
	if err := errors.Join(err, json.Unmarshal(out, &v)); err != nil || v["version"] != version || v["commit"] != commit {
		t.Errorf("%v: %s", err, out)
	}
}

// The demo and a simulated SSP need only the content of the image.
func TestTheImageRunsTheDemo(t *testing.T) {
	testsupport.Needs(t, "buildah", "buildah")
	if out, err := inImage(t, []string{"/adbuffer", "demo", "--once"}).CombinedOutput(); err != nil || !bytes.Contains(out, []byte("ssp/beta")) {
		t.Errorf("%v: %s", err, out)
	}
}
