// Package page serves our dashboards as a web page that needs no Grafana: dashboards/render bundles
// Grafana's own components, this package hands out the bundle and the dashboards, and passes the
// page's queries on to the proxy.
//
//	s, err := page.New(page.Options{Bundle: os.DirFS("dashboards/render/dist"), Dashboards: dashboards.FS(), API: proxyURL})
//	if err != nil {
//		return err
//	}
//	return s.Run(ctx, "127.0.0.1:3300", func(address net.Addr) { fmt.Printf("http://%s\n", address) })
//
// # What it promises
//
// `/` and `/d/UID` are the page, `/dashboards` lists what there is, `/dashboards/NAME.json` is one
// dashboard as it was rendered from jsonnet. What stands below `/api/v1/` goes to the proxy and
// comes back unchanged, refusals and warnings included; a client that leaves ends its query there.
// Run returns when everything it started has ended.
//
// With Options.Plugin it draws dashboards of that datasource too, and its editors: `/edit/query`,
// `/edit/variable`, `/edit/annotation` and `/edit/config`.
//
// # What it refuses
//
// Any address that is not loopback: whoever reaches the page can ask whatever the proxy answers to
// this machine. Requests whose Host is another name, so that no web page elsewhere reads the
// metrics through the browser of somebody who has this page open. Methods other than GET, HEAD and
// POST below /api/v1/.
//
// # Bounds
//
// Dashboards are read once, when the server is made. Bodies are streamed; a request's form may have
// 1 MiB.
package page
