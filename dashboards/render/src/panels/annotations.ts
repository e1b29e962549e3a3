// Annotations on a plot with time on its x axis: a dashed line with a mark below for a moment, a tinted band for a region, as in Grafana.
import { type DataFrame } from '@grafana/data';
import { config as grafana } from '@grafana/runtime';
import { type UPlotConfigBuilder } from '@grafana/ui';
import type uPlot from 'uplot';

interface Event {
  from: number;
  to: number;
  region: boolean;
  color: string;
}

function read(frames: DataFrame[]): Event[] {
  const out: Event[] = [];
  for (const frame of frames) {
    const column = (name: string) => frame.fields.find((f) => f.name === name)?.values;
    const time = column('time');
    for (let i = 0; i < frame.length && time; i++) {
      const from = time[i] as number;
      const to = (column('timeEnd')?.[i] as number | undefined) ?? from;
      out.push({
        from,
        to,
        region: Boolean(column('isRegion')?.[i]) && to > from,
        color: grafana.theme2.visualization.getColorByName((column('color')?.[i] as string | undefined) ?? 'blue'),
      });
    }
  }
  return out;
}

const decorated = new WeakSet<UPlotConfigBuilder>();

/** drawAnnotations adds the drawing to a plot that is being configured. `current` is asked at each draw. */
export function drawAnnotations(config: UPlotConfigBuilder, current: () => DataFrame[]): void {
  if (decorated.has(config)) {
    return;
  }
  decorated.add(config);
  config.addHook('draw', (u: uPlot) => {
    const { ctx } = u;
    const { left, top, width, height } = u.bbox;
    const ratio = window.devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left - 6 * ratio, top, width + 12 * ratio, height + 8 * ratio);
    ctx.clip();
    for (const event of read(current())) {
      const x0 = u.valToPos(event.from, 'x', true);
      const x1 = u.valToPos(event.to, 'x', true);
      if (x1 < left || x0 > left + width) {
        continue;
      }
      ctx.strokeStyle = ctx.fillStyle = event.color;
      const line = (x: number) => {
        ctx.setLineDash([5 * ratio, 5 * ratio]);
        ctx.lineWidth = ratio;
        ctx.beginPath();
        ctx.moveTo(x, top);
        ctx.lineTo(x, top + height);
        ctx.stroke();
      };
      line(x0);
      if (event.region) {
        line(x1);
        ctx.globalAlpha = 0.1;
        ctx.fillRect(x0, top, x1 - x0, height);
        ctx.globalAlpha = 1;
        ctx.fillRect(x0, top + height, x1 - x0, 5 * ratio);
        continue;
      }
      ctx.beginPath();
      ctx.moveTo(x0, top + height);
      ctx.lineTo(x0 - 5 * ratio, top + height + 6 * ratio);
      ctx.lineTo(x0 + 5 * ratio, top + height + 6 * ratio);
      ctx.fill();
    }
    ctx.restore();
  });
}
