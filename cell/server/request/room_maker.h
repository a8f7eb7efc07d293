// RoomMaker is the interface by which requests ask for room in a region.
#pragma once

namespace cell {

class HeldRegion;

class RoomMaker {
 public:
  virtual ~RoomMaker() = default;

  // Returns whether a full region will soon have room, because a split is in progress or begins now.
  virtual bool MakeRoom(HeldRegion* region) = 0;
};

}  // namespace cell
