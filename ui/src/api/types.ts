// Names for what the API says. The shapes are generated from its description.
import type { components, operations } from './schema.ts';

type Schemas = components['schemas'];

export type AuditEntry = Schemas['AuditEntry'];
export type AuditList = Schemas['AuditList'];
export type Cluster = Schemas['Cluster'];
export type ClusterTotals = Schemas['ClusterTotals'];
export type NodeTotals = ClusterTotals['by_node'][number];
export type Department = Schemas['Department'];
export type DepartmentSettings = Schemas['DepartmentSettings'];
export type Device = Schemas['DeviceView'];
export type Event = Schemas['Event'];
export type Eviction = Schemas['Eviction'];
export type Grant = Schemas['Grant'];
export type Kind = Schemas['KindName'];
export type Node = Schemas['Node'];
export type Preview = Schemas['Preview'];
export type Problem = Schemas['Problem'];
export type Progress = Schemas['ProgressView'];
export type Project = Schemas['Project'];
export type ProjectSettings = Schemas['ProjectSettings'];
export type Role = Schemas['Role'];
export type Samples = Schemas['Samples'];
export type Series = Schemas['Series'];
export type SeriesPoint = Schemas['SeriesPoint'];
export type Session = Schemas['Session'];
export type SingleSignOn = Schemas['SingleSignOn'];
export type Status = Schemas['Status'];
export type Submitted = Schemas['Submitted'];
export type Task = Schemas['TaskView'];
export type Token = Schemas['Token'];
export type TokenMade = Schemas['TokenMade'];
export type User = Schemas['User'];
export type WhoAmI = Schemas['WhoAmI'];
export type Why = Schemas['Why'];
export type Workload = Schemas['Workload'];
export type WorkloadRequest = Schemas['WorkloadRequest'];

export interface WorkloadList {
  items: Workload[];
  next?: string | null;
}

export interface Warned<T> {
  item: T;
  warnings?: string[];
}

export type LogQuery = NonNullable<operations['workloads_read']['parameters']['query']>;
