// RoomMaker: whom requests ask for room in a region.
#pragma once

namespace cell {

class HeldRegion;

class RoomMaker {
 public:
  virtual ~RoomMaker() = default;

  // Returns whether a region that is full will have room soon: something is being done about it, or has begun now.
  virtual bool MakeRoom(HeldRegion* region) = 0;
  // Frees at once what is being freed little by little, in all regions: a check would report it as lost.
  virtual void FreeAll() = 0;
};

}  // namespace cell
