// The GPUs of a node as cells: whose each is, and how much of it.
import { memo } from 'react';
import type { Node } from '../api/types.ts';
import { colour } from '../model/colours.ts';
import type { Holding } from '../model/derive.ts';
import { bytes, gpus, percent } from '../model/format.ts';
import { here } from '../model/router.ts';
import { type DeviceTotal, readDeviceTotals, useDeviceTotals } from '../model/totals.ts';
import { Link } from './small.tsx';

type OnNode = ReadonlyMap<number, Holding[]> | undefined;

const FREE: DeviceTotal = { others: 0, utilisation: null };

function words(node: Node, index: number, on: Holding[], others: number) {
  const device = node.devices[index]!;
  const who = on.map(
    ({ workload, share, leaves }) =>
      `${workload.project}/${workload.name} ${gpus(share)}${leaves ? ' (leaving)' : ''}`,
  );
  if (others > 0) who.push(`${OTHERS} ${gpus(others)}`);
  return `GPU ${index}, ${device.model}, ${bytes(device.memory)}: ${who.length === 0 ? 'free' : who.join(', ')}`;
}

/** Workloads that one may not see have no name here. */
const OTHERS = 'in use by others';

function Parts({ on, others }: { on: Holding[]; others: number }) {
  return (
    <>
      {on.map(({ workload, share, leaves }) => (
        <i
          key={workload.id}
          className={leaves ? 'leaves' : ''}
          style={{ height: `${share * 100}%`, ['--of' as string]: colour(workload.project) }}
        />
      ))}
      {others > 0 && <i className="others" style={{ height: `${others * 100}%` }} />}
    </>
  );
}

/** Small cells, for a glance. */
export const DeviceStrip = memo(function DeviceStrip({ node, on }: { node: Node; on: OnNode }) {
  const totals = readDeviceTotals(useDeviceTotals(node, on));
  const cells = node.devices.map(device => ({
    index: device.index,
    holders: on?.get(device.index) ?? [],
    others: totals.get(device.index)?.others ?? 0,
  }));
  const taken = cells.filter(cell => cell.holders.length > 0 || cell.others > 0).length;
  return (
    <span className="strip" role="img" aria-label={`${taken} of ${node.devices.length} GPUs in use`}>
      {cells.map(({ index, holders, others }) => (
        <span key={index} className="cell" title={words(node, index, holders, others)}>
          <Parts on={holders} others={others} />
        </span>
      ))}
    </span>
  );
});

/** Large cells with names; each leads to its workloads. */
export const DeviceGrid = memo(function DeviceGrid({ node, on }: { node: Node; on: OnNode }) {
  const totals = readDeviceTotals(useDeviceTotals(node, on));
  return (
    <ul className="device-grid" aria-label={`GPUs of ${node.name}`}>
      {node.devices.map(device => {
        const holders = on?.get(device.index) ?? [];
        const { others, utilisation } = totals.get(device.index) ?? FREE;
        const isFree = holders.length === 0 && others === 0;
        return (
          <li
            key={device.index}
            className={`device ${isFree ? 'free' : ''}`}
            title={words(node, device.index, holders, others)}
          >
            <span className="device-fill" aria-hidden="true">
              <Parts on={holders} others={others} />
            </span>
            <span className="device-text">
              <span className="device-index">{device.index}</span>
              {utilisation !== null && <span className="device-usage">{percent(utilisation)}</span>}
            </span>
            <span className="device-names">
              {isFree && <span className="dim">free</span>}
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
              {others > 0 && <span className="dim">in use{others < 1 && ` ${gpus(others)}`}</span>}
            </span>
          </li>
        );
      })}
    </ul>
  );
});
