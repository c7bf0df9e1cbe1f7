package browser

import (
	"bytes"
	"image/png"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// README.md shows a picture of the demo's page. "make picture" lets the demo run for a
// while and writes the picture to the file that ADBUFFER_PICTURE names.
func TestAPictureOfTheDemosPage(t *testing.T) {
	demo := testsupport.Launch(t, e2e.Command(t, nil, "demo"), func(d *testsupport.Daemon) bool {
		return strings.Contains(d.Log.String(), "Then write a configuration") // after the steps that it suggests
	})
	page, _, _ := strings.Cut(demo.Log.String(), "\n")
	_, url, found := strings.Cut(page, "The admin page: ")
	testsupport.MustTrue(t, found, "the demo begins with %q", page)
	file := os.Getenv("ADBUFFER_PICTURE")
	if file != "" {
		time.Sleep(3 * time.Minute) // the charts show five minutes
	}
	b := openPage(t, url)
	b.run(chromedp.EmulateViewport(1280, 1180))
	b.wantDrawnCharts()
	b.fresh()
	var picture []byte
	b.run(chromedp.CaptureScreenshot(&picture))
	config, err := png.DecodeConfig(bytes.NewReader(picture))
	testsupport.True(t, err == nil && config.Width == 1280 && config.Height == 1180, "the picture is %+v: %v", config, err)
	if file != "" {
		testsupport.NoError(t, os.WriteFile(file, picture, 0o644))
	}
	b.wantNoProblems()
}
