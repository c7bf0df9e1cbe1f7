package browser

import (
	"context"
	"os"
	"testing"

	"adbuffer/internal/test/testsupport"

	"github.com/chromedp/chromedp"
)

// startChromium runs Debian's chromium for the length of the test, at most four minutes. It is headless, has
// a fresh profile, and makes no network requests of its own. Pass the context to chromedp.Run.
// It adds options to those that every test needs.
func startChromium(t testing.TB, options ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	path := testsupport.Needs(t, "chromium", "chromium")
	all := append([]chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(profile(t)), chromedp.WSURLReadTimeout(testsupport.Patience),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
	}, options...)
	for _, flag := range []string{
		"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars",
	} {
		all = append(all, chromedp.Flag(flag, true))
	}
	limited, cancelLimit := context.WithTimeout(context.Background(), 4*testsupport.Patience)
	allocator, cancelAllocator := chromedp.NewExecAllocator(limited, all...)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		chromedp.Cancel(ctx)
		cancel()
		cancelAllocator()
		cancelLimit()
		chromedp.FromContext(ctx).Allocator.Wait()
	})
	return ctx
}

// profile returns a fresh folder. Chromium's last processes may still write to it after the first
// one has ended.
func profile(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "chromium-")
	testsupport.NoError(t, err)
	t.Cleanup(func() {
		testsupport.Eventually(t, dir+" is removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	return dir
}
