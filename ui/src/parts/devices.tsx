// The GPUs of a node as cells: whose each is, and how much of it.
import { memo } from 'react';
import type { Node } from '../api/types.ts';
import { colour } from '../model/colours.ts';
import type { Holding } from '../model/derive.ts';
import { bytes, gpus, percent } from '../model/format.ts';
import { here } from '../model/router.ts';
import { Link } from './small.tsx';

type OnNode = ReadonlyMap<number, Holding[]> | undefined;

function words(node: Node, index: number, on: Holding[]) {
  const device = node.devices[index]!;
  const who = on.map(
    ({ workload, share, leaves }) =>
      `${workload.project}/${workload.name} ${gpus(share)}${leaves ? ' (leaving)' : ''}`,
  );
  return `GPU ${index}, ${device.model}, ${bytes(device.memory)}: ${who.length === 0 ? 'free' : who.join(', ')}`;
}

function Parts({ on }: { on: Holding[] }) {
  return (
    <>
      {on.map(({ workload, share, leaves }) => (
        <i
          key={workload.id}
          className={leaves ? 'leaves' : ''}
          style={{ height: `${share * 100}%`, ['--of' as string]: colour(workload.project) }}
        />
      ))}
    </>
  );
}

/** Small cells, for a glance. */
export const DeviceStrip = memo(function DeviceStrip({ node, on }: { node: Node; on: OnNode }) {
  const taken = node.devices.filter(device => (on?.get(device.index)?.length ?? 0) > 0).length;
  return (
    <span className="strip" role="img" aria-label={`${taken} of ${node.devices.length} GPUs in use`}>
      {node.devices.map(device => {
        const here = on?.get(device.index) ?? [];
        return (
          <span key={device.index} className="cell" title={words(node, device.index, here)}>
            <Parts on={here} />
          </span>
        );
      })}
    </span>
  );
});

/** Large cells with names; each leads to who is on it. */
export const DeviceGrid = memo(function DeviceGrid({ node, on }: { node: Node; on: OnNode }) {
  return (
    <ul className="device-grid" aria-label={`GPUs of ${node.name}`}>
      {node.devices.map(device => {
        const holders = on?.get(device.index) ?? [];
        const usage = device.usage;
        return (
          <li
            key={device.index}
            className={`device ${holders.length === 0 ? 'free' : ''}`}
            title={words(node, device.index, holders)}
          >
            <span className="device-fill" aria-hidden="true">
              <Parts on={holders} />
            </span>
            <span className="device-text">
              <span className="device-index">{device.index}</span>
              {usage && <span className="device-usage">{percent(usage.utilisation)}</span>}
            </span>
            <span className="device-names">
              {holders.length === 0 && <span className="dim">free</span>}
              {holders.map(({ workload, share, leaves }) => (
                <Link
                  key={workload.id}
                  to={here(`/workloads/${workload.id}`)}
                  className={leaves ? 'leaves' : ''}
                >
                  {workload.name}
                  {share < 1 && <span className="dim"> {gpus(share)}</span>}
                </Link>
              ))}
            </span>
          </li>
        );
      })}
    </ul>
  );
});
